#include "base/host.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/fingerprint.h"

namespace plait::base {

namespace {

std::string first_word_of(const char* path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

}  // namespace

std::string id_of_host(const std::string& boot, const std::string& machine,
                       const std::string& name) {
  if (boot.empty()) return "";
  const std::string all = boot + '\n' + machine + '\n' + name;
  std::array<char, 33> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx%016llx",
                static_cast<unsigned long long>(fingerprint(all)),
                static_cast<unsigned long long>(fingerprint(all + '\n', 0x6c62272e07bb0142ULL)));
  return digits.data();
}

std::string host_id() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) name = {};
  return id_of_host(boot_id(), first_word_of("/etc/machine-id"), name.data());
}

std::string boot_id() { return first_word_of("/proc/sys/kernel/random/boot_id"); }

std::string namespace_id(const char* kind) {
  std::error_code failure;
  const auto id =
      std::filesystem::read_symlink(std::filesystem::path("/proc/self/ns") / kind, failure);
  return failure ? "" : id.string();
}

}  // namespace plait::base
