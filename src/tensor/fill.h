// Test data that does not depend on how a matrix is split or laid out.
//
//   fill_random(shard, seed, {.row = first_row_of_shard});   // the same rows as in the whole
#pragma once

#include <cstdint>

#include "plait/tensor_view.h"

namespace plait::tensor {

// The position of the view's first element in the matrix that the view is a part of.
struct Origin {
  std::int64_t row = 0;
  std::int64_t col = 0;
};

// Writes values uniform in [-1, 1), which depend on the seed, the row and the column only, rounded
// to the view's dtype. In s8: whole numbers uniform in [-128, 127].
void fill_random(const TensorView& view, std::uint64_t seed, Origin origin = {});

}  // namespace plait::tensor
