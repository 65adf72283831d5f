// Explains which transport connect() would choose, and why not the others.
#pragma once

#include <string>
#include <vector>

#include "cli/info/show.h"

namespace plait::cli {

// Parses "ranks=4 hosts=2 launcher=mpirun transport=shm" in any order. Each is optional; missing
// ones are taken from the environment. `chosen` is null if no transport is usable.
Json explain_transport(const std::vector<std::string>& words);

std::string show_transport(const Json& explained);

}  // namespace plait::cli
