#include "comm/session/placement.h"

#include <algorithm>
#include <bit>
#include <set>

namespace plait::comm {
namespace {

int count_per_host(const std::vector<std::string>& hosts, std::size_t count) {
  if (count <= 1) return 1;
  const std::size_t per_host = hosts.size() / count;
  if (hosts.size() % count != 0 || !std::has_single_bit(per_host)) return 1;
  // There are as many blocks as hosts. If each block is of one host, each host is one block.
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != hosts[rank / per_host * per_host]) return 1;
  }
  return static_cast<int>(per_host);
}

}  // namespace

Placement placement_of(const std::vector<std::string>& hosts, bool shares_clock) {
  std::set<std::string> known(hosts.begin(), hosts.end());
  const auto unknown = static_cast<int>(std::count(hosts.begin(), hosts.end(), ""));
  if (unknown > 0) {
    known.erase("");
    return {.hosts = shares_clock ? 1 : static_cast<int>(known.size()) + unknown};
  }
  return {.hosts = static_cast<int>(known.size()),
          .ranks_per_host = count_per_host(hosts, known.size())};
}

}  // namespace plait::comm
