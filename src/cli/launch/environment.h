// What a rank finds in its environment: its place, and nobody else's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plait/communicator.h"

namespace plait::cli {

// "NAME=value" strings: those of `inherited` without any launcher's placement, then the place, and
// OMP_NUM_THREADS where the user has not set it.
std::vector<std::string> environment_of(const Place& place, int threads,
                                        const char* const* inherited);

// Whether this variable tells a process its place in some launcher's world. A rank that saw it
// beside ours might believe it.
bool is_placement(std::string_view name);

// 128 random bits in hex.
std::string random_job();

}  // namespace plait::cli
