// Refusals of a layer, in one sentence each, before anything is written or sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plait/linear.h"

namespace plait::nn {

// This rank's sizes of a layer.
struct Sizes {
  std::int64_t outputs;
  std::int64_t inputs;
};

// True if a call brings this operand: one of nothing may have no data, but it has a dtype.
inline bool is_given(const ConstTensorView& view) {
  return view.dtype != kNoDtype || view.data != nullptr || view.rows != 0 || view.cols != 0;
}

// The properties of the layer's weight, whatever call brings it.
struct WantedWeight {
  const char* what;  // "weight"
  std::int64_t n;
  std::int64_t k;
  WeightKind kind;
};
void check_weight(std::string_view layer, const Weight& weight, const WantedWeight& wanted);

// The properties of backward's operands.
struct Wanted {
  std::int64_t grad_out_rows;
  std::int64_t x_rows;
  bool needs_x;
  Sizes sizes;
  WeightLayout layout;
  std::optional<Sizes> columns = {};  // of grad_out and x, if they are not those of the weight
};
void check_backward(std::string_view layer, const LinearBackward& call, const Wanted& wanted);

}  // namespace plait::nn
