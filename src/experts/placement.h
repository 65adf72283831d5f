// Which rank has which experts, or parts of experts, and which rows go to each of them. To the
// exchange a part is an expert: expert e in 2 parts is 2 * e and 2 * e + 1, and a slot two slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plait::experts {

class Placement {
 public:
  // `ranks`: of each part; empty: see ExpertsDesc::ranks.
  struct Cut {
    std::int64_t experts;
    std::int64_t parts = 1;  // of each
  };
  Placement(const Cut& cut, int world, std::span<const int> ranks);

  int world() const { return static_cast<int>(of_rank_.size()); }
  int rank_of(std::int64_t expert) const { return ranks_[static_cast<std::size_t>(expert)]; }
  std::span<const int> ranks() const { return ranks_; }
  std::int64_t parts() const { return parts_; }

  // The expert's number among those of its rank.
  std::int64_t local(std::int64_t expert) const { return local_[static_cast<std::size_t>(expert)]; }
  const std::vector<std::int64_t>& experts_of(int rank) const {
    return of_rank_[static_cast<std::size_t>(rank)];
  }

  // The experts of the rank that has most; at least 1.
  std::int64_t groups() const { return groups_; }

 private:
  std::int64_t parts_;
  std::vector<int> ranks_;
  std::vector<std::int64_t> local_;
  std::vector<std::vector<std::int64_t>> of_rank_;
  std::int64_t groups_ = 1;
};

// The slots of a batch, sorted by rank and expert. Those of one expert stay in their order.
class SlotOrder {
 public:
  // `ids`: of whole experts.
  void sort(std::span<const std::int64_t> ids, const Placement& placement);

  std::int64_t count(int rank, std::int64_t group) const {
    return first_[index(rank, group) + 1] - first_[index(rank, group)];
  }
  std::span<const std::int64_t> slots(int rank, std::int64_t group) const {
    return std::span(slots_).subspan(static_cast<std::size_t>(first_[index(rank, group)]),
                                     static_cast<std::size_t>(count(rank, group)));
  }
  std::span<const std::int64_t> slots(int rank) const {
    const std::int64_t first = first_[index(rank, 0)];
    return std::span(slots_).subspan(static_cast<std::size_t>(first),
                                     static_cast<std::size_t>(first_[index(rank + 1, 0)] - first));
  }

 private:
  std::size_t index(std::int64_t rank, std::int64_t group) const {
    return static_cast<std::size_t>(rank * groups_ + group);
  }

  std::int64_t groups_ = 1;
  std::vector<std::int64_t> first_;  // by rank and group, and one more
  std::vector<std::int64_t> slots_;
};

}  // namespace plait::experts
