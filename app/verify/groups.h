// Grouped products (plait/grouped_gemm.h) of the operands of a case of `matmul`.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "verify/operands.h"

namespace plait::verify {

// The rows of this rank's x in random groups, some without rows, by the weights of the ranks in
// turn. In one call, on one or two threads, and as a product for each group on one.
std::pair<Guarded, Guarded> in_groups(const VerifyCase& one,
                                      std::span<const std::unique_ptr<VerifyOperands>> all,
                                      int rank);

}  // namespace plait::verify
