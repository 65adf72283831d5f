#include "experts/placement.h"

#include <algorithm>

namespace plait::experts {

Placement::Placement(const Cut& cut, int world, std::span<const int> ranks)
    : parts_(cut.parts),
      ranks_(ranks.begin(), ranks.end()),
      local_(static_cast<std::size_t>(cut.experts * cut.parts)),
      of_rank_(static_cast<std::size_t>(world)) {
  if (ranks_.empty()) {
    // 7 experts, 3 ranks -> 0 0 0 1 1 2 2;  3 experts in 2 parts, 4 ranks -> 0 1 0 1 2 3
    const std::int64_t each = world % parts_ == 0 ? parts_ : 1;
    const std::int64_t runs = world / each;
    const std::int64_t blocks = std::ssize(local_) / each;
    for (std::int64_t run = 0; run < runs; ++run) {
      const std::int64_t its = blocks / runs + (run < blocks % runs ? 1 : 0);
      for (std::int64_t i = 0; i < its * each; ++i)
        ranks_.push_back(static_cast<int>(run * each + i % each));
    }
  }
  for (std::int64_t expert = 0; expert < std::ssize(local_); ++expert) {
    std::vector<std::int64_t>& its = of_rank_[static_cast<std::size_t>(rank_of(expert))];
    local_[static_cast<std::size_t>(expert)] = std::ssize(its);
    its.push_back(expert);
    groups_ = std::max<std::int64_t>(groups_, std::ssize(its));
  }
}

void SlotOrder::sort(std::span<const std::int64_t> ids, const Placement& placement) {
  groups_ = placement.groups();
  const auto for_each_place = [&](auto&& visit) {
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      for (std::int64_t part = 0; ids[slot] >= 0 && part < placement.parts(); ++part) {
        const std::int64_t id = ids[slot] * placement.parts() + part;
        visit(static_cast<std::int64_t>(slot) * placement.parts() + part,
              index(placement.rank_of(id), placement.local(id)));
      }
    }
  };
  first_.assign(static_cast<std::size_t>(placement.world() * groups_) + 1, 0);
  for_each_place([&](std::int64_t /*slot*/, std::size_t place) { ++first_[place + 1]; });
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  slots_.resize(static_cast<std::size_t>(first_.back()));
  std::vector<std::int64_t> next(first_.begin(), first_.end() - 1);
  for_each_place([&](std::int64_t slot, std::size_t place) {
    slots_[static_cast<std::size_t>(next[place]++)] = slot;
  });
}

}  // namespace plait::experts
