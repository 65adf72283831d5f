// The rendezvous of the threads of one group: one object for all of them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/region.h"
#include "comm/mapped/rendezvous.h"

namespace plait::comm::threads {

class ThreadRendezvous {
 public:
  explicit ThreadRendezvous(int world);

  int world() const { return world_; }

  // Refuses a rank that is out of range or has been added before.
  void add(int rank);
  void leave(int rank) noexcept;

  // The argument of one rank to meet().
  struct Contribution {
    std::string bytes;
    base::Region region;
  };

  // Collective: returns the contributions of all ranks, in rank order.
  std::vector<Contribution> meet(int rank, Contribution mine, base::Nanoseconds timeout,
                                 const Rendezvous::Watch& watch);

  // The rendezvous of the sub-group led by `leader`, agreed on at the last meeting; the first of
  // its ranks to call makes it.
  std::shared_ptr<ThreadRendezvous> subgroup(int leader, int world);

  // How many sub-groups are remembered for ranks that have yet to call subgroup().
  std::size_t subgroups_remembered();

  // The rendezvous of a group that goes on without lost ranks, by a name that make_name() has
  // returned to one of them; the first of its ranks to call makes it.
  std::string make_name();
  std::shared_ptr<ThreadRendezvous> find_named(const std::string& name, int world);

  class Rank;  // the part that one rank holds

 private:
  using Contributions = std::shared_ptr<std::vector<Contribution>>;

  std::vector<int> absent() const;

  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> joined_;
  std::vector<bool> left_;

  // The meeting that is filling up. The rank that completes it starts the next one, and ranks that
  // still sleep keep their own through the shared pointer.
  Contributions contributions_;
  std::vector<bool> here_;
  int count_ = 0;
  std::uint64_t meeting_ = 0;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<ThreadRendezvous>> subgroups_;
  std::uint64_t names_ = 0;
  std::map<std::string, std::weak_ptr<ThreadRendezvous>> named_;
};

std::unique_ptr<Rendezvous> join(std::shared_ptr<ThreadRendezvous> rendezvous, int rank,
                                 base::Nanoseconds timeout);

}  // namespace plait::comm::threads
