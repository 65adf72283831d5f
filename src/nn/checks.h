// What a layer refuses, in one sentence each, before anything is written or sent.
#pragma once

#include <cstdint>
#include <string_view>

#include "plait/linear.h"

namespace plait::nn {

// This rank's sizes of a layer.
struct Sizes {
  std::int64_t outputs;
  std::int64_t inputs;
};

// A rank without rows or columns of its own may have no data, and yet asks.
inline bool is_asked(const ConstTensorView& gradient) {
  return gradient.data != nullptr || gradient.rows != 0 || gradient.cols != 0;
}

// Refuses a backward weight that is not the weight with inputs and outputs exchanged.
void check_weight(std::string_view who, const LinearWeight& weight, const Sizes& sizes);

// What backward is to find, in a call that follows a forward with so many rows.
struct Wanted {
  std::int64_t grad_out_rows;
  std::int64_t x_rows;
  ConstTensorView x;  // of the forward
  Sizes sizes;
  WeightLayout layout;
  const LinearWeight& weight;
};
void check_backward(std::string_view who, const LinearBackward& call, const Wanted& wanted);

}  // namespace plait::nn
