// The weight of a linear layer: k inputs, n outputs, and an explicit word for how it lies.
//
//   plait::WeightView w{.view = weight, .layout = WeightLayout::out_in};  // [n, k], as in Megatron
//
// Nothing is ever guessed from shapes: a square weight has a layout too.
#pragma once

#include <cstdint>
#include <string_view>

#include "plait/export.h"
#include "plait/tensor_view.h"

namespace plait {

enum class WeightLayout : std::uint8_t {
  out_in,  // [n, k]: a row per output
  in_out,  // [k, n]: a row per input
};

PLAIT_EXPORT std::string_view name(WeightLayout layout);

// Somebody else's weight, f32, bf16 or f16.
struct WeightView {
  ConstTensorView view;
  WeightLayout layout;

  std::int64_t n() const { return layout == WeightLayout::out_in ? view.rows : view.cols; }
  std::int64_t k() const { return layout == WeightLayout::out_in ? view.cols : view.rows; }
};

}  // namespace plait
