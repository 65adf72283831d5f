#include "comm/control/sharing_domain.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "base/check.h"
#include "base/host.h"
#include "base/text.h"

namespace plait::comm::tcp {
namespace {

// Names of the parts of a home, for a sentence about two that differ. After them comes the name of
// a simulated host, which may contain slashes.
constexpr std::array<const char*, 5> kDifferences = {
    "",  // the kernel
    "its host name or /etc/machine-id is another", "it is in another network namespace",
    "it is in another process namespace", "it has another user"};

// Removes the first part of a home and returns it.
std::string_view take_part(std::string_view& home) {
  const std::size_t slash = std::min(home.find('/'), home.size());
  const std::string_view part = home.substr(0, slash);
  home.remove_prefix(std::min(slash + 1, home.size()));
  return part;
}

}  // namespace

std::string home_of_this_process(std::string host) {
  std::replace_if(host.begin(), host.end(), [](char c) { return c <= ' '; }, '_');
  const std::string machine = base::host_id();
  const std::string network = base::namespace_id("net");
  const std::string processes = base::namespace_id("pid");
  if (machine.empty() || network.empty() || processes.empty()) return "";
  return base::sentence(base::boot_id(), '/', machine, '/', network, '/', processes, '/',
                        ::geteuid(), '/', host);
}

std::string difference_of(const std::string& mine, const std::string& theirs) {
  if (mine.empty() || theirs.empty()) return "";
  std::string_view my_rest = mine;
  std::string_view their_rest = theirs;
  for (const char* difference : kDifferences) {
    if (take_part(my_rest) != take_part(their_rest)) return difference;
  }
  return my_rest == their_rest ? "" : "its PLAIT_HOST is another";
}

}  // namespace plait::comm::tcp
