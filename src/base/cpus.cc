#include "base/cpus.h"

#include <algorithm>
#include <cstring>

namespace plait::base {

cpu_set_t allowed_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_SET(0, &cpus);
  return cpus;
}

std::string to_bytes(const cpu_set_t& cpus) {
  return {reinterpret_cast<const char*>(&cpus), sizeof(cpus)};
}

cpu_set_t cpus_from_bytes(const std::string& bytes) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  std::memcpy(&cpus, bytes.data(), std::min(bytes.size(), sizeof(cpus)));
  return cpus;
}

}  // namespace plait::base
