// Refuses views that no call can use.
//
//   validate(x, "matmul_all_reduce: x");
//   // → Error{invalid_argument}: matmul_all_reduce: x is 3 x 4 but its data is null
#pragma once

#include <cstddef>
#include <string_view>

#include "plait/tensor_view.h"

namespace plait::tensor {

// Refuses an unknown dtype, negative sizes, rows that overlap, a size beyond the address space, and
// data that is null or not aligned to its elements. A view without elements may have any data.
// `who` starts the sentence.
void validate(const ConstTensorView& view, std::string_view who);

// Also refuses memory that the CPU can't read.
void validate_on_cpu(const ConstTensorView& view, std::string_view who);

// The bytes of rows · cols elements. Refuses negative sizes, and more bytes than the address space
// has.
std::size_t checked_bytes(const ConstTensorView& shape, std::string_view who);

}  // namespace plait::tensor
