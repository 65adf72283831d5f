// The properties that processes must have in common to share memory: the machine, namespaces and
// the user.
#pragma once

#include <string>

namespace plait::comm::tcp {

// This process's, as one word. `host`: the name of a simulated host (PLAIT_HOST); empty: the
// machine's own. Empty if something of it is unknown.
std::string home_of_this_process(std::string host);

// The first difference of two processes of one kernel, as "it has another user" of the one with
// `theirs`. Empty: they run on different kernels, or nothing differs, or a home is unknown.
std::string difference_of(const std::string& mine, const std::string& theirs);

}  // namespace plait::comm::tcp
