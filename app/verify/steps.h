// Computes what an operator must return, to the bit, on one rank alone, in the steps of the
// numerics contract: without a schedule or a transport. If every rank's result equals this, all
// ranks sum in the same order.
#pragma once

#include <memory>
#include <span>

#include "verify/case.h"
#include "verify/operands.h"

namespace plait::verify {

// `out` of the rank, from x(). `all`: the operands of every rank.
Guarded in_steps(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                 int rank);

// The result of one rank that has all k, of a case whose ranks have equal shares: the rows that
// `rank` has.
Guarded on_one_rank(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                    int rank);

}  // namespace plait::verify
