#include "comm/placement.h"

#include <algorithm>
#include <bit>
#include <set>

namespace plait::comm {

int ranks_per_host(const std::vector<std::string>& hosts) {
  if (hosts.empty() || std::find(hosts.begin(), hosts.end(), "") != hosts.end()) return 1;
  const std::size_t count = std::set<std::string>(hosts.begin(), hosts.end()).size();
  const std::size_t per_host = hosts.size() / count;
  if (count == 1 || hosts.size() % count != 0 || !std::has_single_bit(per_host)) return 1;
  // There are as many blocks as hosts. If each block is of one host, each host is one block.
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != hosts[rank / per_host * per_host]) return 1;
  }
  return static_cast<int>(per_host);
}

}  // namespace plait::comm
