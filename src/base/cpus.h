// The processors this process may run on.
#pragma once

#include <sched.h>

#include <string>

namespace plait::base {

cpu_set_t allowed_cpus();

// Conversions to and from bytes, so that ranks can send their sets to one another.
std::string to_bytes(const cpu_set_t& cpus);
cpu_set_t cpus_from_bytes(const std::string& bytes);

}  // namespace plait::base
