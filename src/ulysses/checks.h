// Refusals of the two operators, in one sentence each, before anything is written.
#pragma once

#include "ulysses/ulysses_op.h"

namespace plait::ulysses {

// Returns the rows of all ranks.
std::int64_t check_call(const Kind& kind, const Operands& operands, const UlyssesOptions& options,
                        const Communicator& comm);

}  // namespace plait::ulysses
