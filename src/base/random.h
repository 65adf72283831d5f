// Random names that no other process has.
#pragma once

#include <string>

namespace plait::base {

// 128 random bits in hex. Throws Error{system} if the system has none to give.
std::string random_name();

}  // namespace plait::base
