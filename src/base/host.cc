#include "base/host.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace plait::base {

std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string namespace_id(const char* kind) {
  std::error_code failure;
  const auto id =
      std::filesystem::read_symlink(std::filesystem::path("/proc/self/ns") / kind, failure);
  return failure ? "" : id.string();
}

}  // namespace plait::base
