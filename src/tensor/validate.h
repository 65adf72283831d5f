// Refuses views that no call could work with.
//
//   validate(x, "matmul_all_reduce: x");
//   // → Error{invalid_argument}: matmul_all_reduce: x is 3 x 4 but its data is null
#pragma once

#include <cstddef>
#include <string_view>

#include "plait/tensor_view.h"

namespace plait::tensor {

// Refuses an unknown dtype, negative sizes, rows that overlap, more bytes than an address can
// count, and data that is null or not aligned to its elements. A view without elements may have any
// data. `who` starts the sentence.
void validate(const ConstTensorView& view, std::string_view who);

// Also refuses what the CPU can't read.
void validate_on_cpu(const ConstTensorView& view, std::string_view who);

// rows · cols elements in bytes; refuses negative sizes and more than an address can count.
std::size_t checked_bytes(const ConstTensorView& shape, std::string_view who);

}  // namespace plait::tensor
