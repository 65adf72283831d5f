// Test data that does not depend on how a matrix is cut or laid out.
//
//   fill_random(shard, seed, {.row = first_row_of_shard});   // the rows that the whole would have
#pragma once

#include <cstdint>

#include "plait/tensor_view.h"

namespace plait::tensor {

// Where the view's first element stands in the matrix that it is a part of.
struct Origin {
  std::int64_t row = 0;
  std::int64_t col = 0;
};

// Values uniform in [-1, 1), a function of seed, row and column alone, rounded to the view's dtype;
// in s8, whole numbers uniform in [-128, 127].
void fill_random(const TensorView& view, std::uint64_t seed, Origin origin = {});

}  // namespace plait::tensor
