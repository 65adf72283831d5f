// An all-gather of bytes, by which the members of a group agree on what they make next.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "comm/engines/mpi/plugin/members.h"

namespace plait::comm::mpi {

// Asked now and then during the exchange, with the members that have not done their part; throws to
// end it.
using MissingCheck = base::FunctionRef<void(const std::vector<int>& missing)>;

// Collective over the members of a group. It has no deadline but the one that `watch` keeps.
std::vector<std::string> all_gather(const Members& members, const std::string& mine,
                                    MissingCheck watch);

// Throws Error{timeout} that names them: `missing` of `world` ranks.
[[noreturn]] void refuse_for_missing(int me, int world, const std::vector<int>& missing,
                                     base::Nanoseconds timeout);

}  // namespace plait::comm::mpi
