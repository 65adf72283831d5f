#include "experts/placement.h"

#include <algorithm>

namespace plait::experts {

Placement::Placement(std::int64_t experts, int world, std::span<const int> ranks)
    : ranks_(ranks.begin(), ranks.end()),
      local_(static_cast<std::size_t>(experts)),
      of_rank_(static_cast<std::size_t>(world)) {
  if (ranks_.empty()) {
    // 7 experts, 3 ranks -> 0 0 0 1 1 2 2
    const std::int64_t each = experts / world;
    const std::int64_t larger = experts % world;
    for (int rank = 0; rank < world; ++rank)
      ranks_.insert(ranks_.end(), static_cast<std::size_t>(each + (rank < larger ? 1 : 0)), rank);
  }
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    std::vector<std::int64_t>& its = of_rank_[static_cast<std::size_t>(rank_of(expert))];
    local_[static_cast<std::size_t>(expert)] = std::ssize(its);
    its.push_back(expert);
    groups_ = std::max<std::int64_t>(groups_, std::ssize(its));
  }
}

void SlotOrder::sort(std::span<const std::int64_t> ids, const Placement& placement) {
  groups_ = placement.groups();
  const auto place = [&](std::int64_t id) {
    return index(placement.rank_of(id), placement.local(id));
  };
  first_.assign(static_cast<std::size_t>(placement.world() * groups_) + 1, 0);
  for (const std::int64_t id : ids) {
    if (id >= 0) ++first_[place(id) + 1];
  }
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  slots_.resize(static_cast<std::size_t>(first_.back()));
  std::vector<std::int64_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    if (ids[slot] < 0) continue;
    slots_[static_cast<std::size_t>(next[place(ids[slot])]++)] = static_cast<std::int64_t>(slot);
  }
}

}  // namespace plait::experts
