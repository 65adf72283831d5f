// The processors this process may run on.
#pragma once

#include <sched.h>

#include <string>

namespace plait::base {

cpu_set_t allowed_cpus();

// To and from bytes, so that ranks can tell each other.
std::string to_bytes(const cpu_set_t& cpus);
cpu_set_t cpus_from_bytes(const std::string& bytes);

}  // namespace plait::base
