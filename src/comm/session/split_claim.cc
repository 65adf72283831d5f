#include "comm/session/split_claim.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace plait::comm {
namespace {

std::vector<SplitClaim> read(const std::vector<std::string>& claims) {
  std::vector<SplitClaim> all(claims.size());
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    if (claims[rank].size() != sizeof(SplitClaim)) {
      throw Error(Code::mismatch,
                  base::sentence("split: rank ", rank, " has sent ", claims[rank].size(),
                                 " bytes instead of its color and key"),
                  static_cast<int>(rank));
    }
    std::memcpy(&all[rank], claims[rank].data(), sizeof(SplitClaim));
  }
  return all;
}

}  // namespace

std::string SplitClaim::bytes() const {
  return {reinterpret_cast<const char*>(this), sizeof(*this)};
}

std::vector<int> members_of(const std::vector<std::string>& claims, int color) {
  const std::vector<SplitClaim> all = read(claims);
  std::vector<int> members;
  for (int rank = 0; color >= 0 && rank < static_cast<int>(all.size()); ++rank) {
    if (all[rank].color == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return all[a].key < all[b].key; });
  return members;
}

}  // namespace plait::comm
