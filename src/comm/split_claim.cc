#include "comm/split_claim.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace plait::comm {
namespace {

SplitClaim claim_in(const std::string& bytes) {
  SplitClaim claim = {};
  PLAIT_CHECK(SplitClaim::is_one(bytes), "split: a rank sent ", bytes.size(), " bytes");
  std::memcpy(&claim, bytes.data(), sizeof(claim));
  return claim;
}

}  // namespace

std::string SplitClaim::bytes() const {
  return {reinterpret_cast<const char*>(this), sizeof(*this)};
}

std::vector<int> members_of(const std::vector<std::string>& claims, int color) {
  std::vector<int> members;
  for (int rank = 0; color >= 0 && rank < static_cast<int>(claims.size()); ++rank) {
    if (claim_in(claims[rank]).color == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return claim_in(claims[a]).key < claim_in(claims[b]).key; });
  return members;
}

}  // namespace plait::comm
