#include "launch/launch.h"

#include "launch/format.h"

namespace plait::launch {

std::string Launch::show(const std::vector<int>& members) const {
  std::vector<int> ranks;
  std::string names;
  for (const int member : members) {
    ranks.push_back(part.first + member);
    if (hosts.empty()) continue;
    names += names.empty() ? "" : member == members.back() ? " and " : ", ";
    names += hosts[member].host;
  }
  if (hosts.empty()) return show_ranks(ranks);
  return (members.size() == 1 ? "the run on " : "the runs on ") + names;
}

}  // namespace plait::launch
