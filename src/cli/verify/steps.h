// What an operator must give, to the bit, made by one rank alone in the steps that the numerics
// contract names: no schedule, no transport, nobody's help. All ranks sum in the same order where
// each of them has what this says.
#pragma once

#include <memory>
#include <span>

#include "cli/verify/case.h"
#include "cli/verify/operands.h"

namespace plait::cli {

// `out` of the rank, from x(). `all`: the operands of every rank.
Guarded in_steps(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                 int rank);

// What one rank would give that has all k, of a case whose ranks have equal shares of them: those
// of its rows that `rank` has.
Guarded on_one_rank(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                    int rank);

}  // namespace plait::cli
