// Which kernel this process runs on, and which part of it it sees.
#pragma once

#include <string>

namespace plait::base {

// The same text in all processes of one running kernel, and in no other; a host's name is not that.
// Empty where it can't be told.
std::string boot_id();

// The same text in all processes of one namespace of this kind ("net", "pid"); empty where it can't
// be told.
std::string namespace_id(const char* kind);

}  // namespace plait::base
