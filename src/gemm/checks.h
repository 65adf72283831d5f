// Refusals of a product, in one sentence each.
#pragma once

#include "plait/gemm.h"

namespace plait::gemm {

// Error{invalid_argument} unless these dtypes can be multiplied and the sizes are none below 0.
void check(const GemmDesc& desc);

// Throws Error{invalid_argument} unless x has k columns of the description's dtype.
void check_input(const GemmDesc& desc, const GemmInput& x);

// Error{invalid_argument} unless the call fits the description, and writes nothing that it reads.
void check(const GemmDesc& desc, const GemmCall& call);

// The part of it that the weight and the bias are for.
void check_weight_and_bias(const GemmDesc& desc, const GemmCall& call);

// The range with its end in place of -1, from 0 to `count` where nothing else was said.
Range resolved(Range range, std::int64_t count);

}  // namespace plait::gemm
