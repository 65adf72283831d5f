// Adds up the results of a row's experts, in the order of the slots.
#pragma once

#include <cstddef>
#include <span>

#include "plait/tensor_view.h"

namespace plait::experts {

struct Combine {
  std::span<const void* const> results;  // [rows * top * parts]: of `hidden` each; null: none
  Dtype dtype;                           // of them
  const float* weights;                  // [rows * top]; null: they are weighted already
  std::int64_t top;
  std::int64_t parts;  // of a slot's result, added first
};

// out[t] = weights[t, 0] * results[t, 0] + ..., in f32, rounded once.
void combine(const Combine& work, const TensorView& out, int threads);

}  // namespace plait::experts
