#include "comm/meet/thread_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/deadline.h"
#include "comm/core/group.h"
#include "comm/core/interruption.h"
#include "comm/core/started.h"

namespace plait::comm::threads {

namespace {

std::shared_ptr<ThreadRendezvous> find_or_make(std::weak_ptr<ThreadRendezvous>& known, int world) {
  std::shared_ptr<ThreadRendezvous> rendezvous = known.lock();
  if (rendezvous == nullptr) {
    rendezvous = std::make_shared<ThreadRendezvous>(world);
    known = rendezvous;
  }
  return rendezvous;
}

std::exception_ptr refusal_of(const Rendezvous::Watch& watch, int peer) noexcept {
  try {
    if (watch) watch(peer);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

ThreadRendezvous::ThreadRendezvous(int world)
    : world_(world),
      joined_(world),
      left_(world),
      contributions_(std::make_shared<std::vector<Contribution>>(world)),
      here_(world) {}

void ThreadRendezvous::add(int rank) {
  PLAIT_CHECK(rank >= 0 && rank < world_, "join: there is no rank ", rank, " in a world of ",
              world_);
  const std::lock_guard lock(mutex_);
  PLAIT_CHECK(!left_[rank], "join: rank ", rank, " of ", world_,
              " has joined and left before; a group that failed or was left needs a new one");
  PLAIT_CHECK(!joined_[rank], "join: two threads claim rank ", rank, " of ", world_);
  joined_[rank] = true;
}

void ThreadRendezvous::leave(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  left_[rank] = true;
  changed_.notify_all();
}

std::vector<int> ThreadRendezvous::absent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_; ++rank) {
    if (!here_[rank]) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<ThreadRendezvous::Contribution> ThreadRendezvous::meet(int rank, Contribution mine,
                                                                   base::Nanoseconds timeout,
                                                                   const Rendezvous::Watch& watch) {
  std::unique_lock lock(mutex_);
  const Contributions contributions = contributions_;
  const std::uint64_t meeting = meeting_;
  Contributions next;  // made before anything changes, because memory may be lacking
  if (count_ + 1 == world_) next = std::make_shared<std::vector<Contribution>>(world_);
  (*contributions)[rank] = std::move(mine);
  here_[rank] = true;
  if (++count_ == world_) {
    ++meeting_;
    contributions_ = std::move(next);
    here_.assign(world_, false);
    count_ = 0;
    changed_.notify_all();
  }
  Deadline deadline(timeout);
  while (meeting_ == meeting) {
    const std::vector<int> late = absent();
    const auto gone = std::find_if(late.begin(), late.end(), [&](int peer) { return left_[peer]; });
    // The watch comes before any blame: the rank may have left because the group had failed.
    lock.unlock();
    const Interruption interruption;
    const std::exception_ptr refusal = refusal_of(watch, late.front());
    lock.lock();
    // All ranks have come meanwhile; what they did afterwards is reported by the next call. What
    // the caller's hook threw is said once, here.
    if (meeting_ != meeting && !interruption.has_come()) break;
    if (refusal != nullptr) std::rethrow_exception(refusal);
    if (gone != late.end()) {
      throw Error(Code::peer_lost,
                  base::sentence("rank ", rank, " waits to meet rank ", *gone,
                                 ", which has left the group"),
                  *gone);
    }
    if (deadline.is_over()) {
      throw Error(
          Code::timeout,
          base::sentence("rank ", rank, " has waited ", base::show_duration(timeout), " for rank",
                         late.size() > 1 ? "s " : " ", base::show_list(late), " of ", world_),
          late.front());
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(nap_of(20 * base::kMillisecond)));
  }
  return *contributions;
}

std::shared_ptr<ThreadRendezvous> ThreadRendezvous::subgroup(int leader, int world) {
  const std::lock_guard lock(mutex_);
  // All ranks have found the sub-groups of earlier meetings.
  subgroups_.erase(subgroups_.begin(), subgroups_.lower_bound({meeting_, 0}));
  return find_or_make(subgroups_[{meeting_, leader}], world);
}

std::string ThreadRendezvous::make_name() {
  const std::lock_guard lock(mutex_);
  return std::to_string(++names_);
}

std::shared_ptr<ThreadRendezvous> ThreadRendezvous::find_named(const std::string& name, int world) {
  const std::lock_guard lock(mutex_);
  return find_or_make(named_[name], world);
}

std::size_t ThreadRendezvous::subgroups_remembered() {
  const std::lock_guard lock(mutex_);
  return subgroups_.size();
}

class ThreadRendezvous::Rank final : public Rendezvous {
 public:
  Rank(std::shared_ptr<ThreadRendezvous> rendezvous, int rank, base::Nanoseconds timeout)
      : shared_(std::move(rendezvous)), rank_(rank), timeout_(timeout) {
    shared_->add(rank);
  }
  ~Rank() override { shared_->leave(rank_); }

  int rank() const override { return rank_; }
  int world() const override { return shared_->world(); }
  void set_timeout(base::Nanoseconds timeout) override { timeout_ = timeout; }

  std::vector<std::string> all_gather(const std::string& mine, const Watch& watch) override {
    std::vector<std::string> all;
    for (Contribution& one : meet({mine, {}}, watch)) all.push_back(std::move(one.bytes));
    return all;
  }

  std::vector<base::Region> share(std::size_t bytes, const std::string& purpose,
                                  const Watch& watch) override {
    const auto contributions = meet({purpose, base::Region::allocate(bytes)}, watch);
    std::vector<base::Region> regions;
    for (int peer = 0; peer < world(); ++peer) {
      // A watch that knows which calls these are throws an error that names them.
      if (watch && contributions[peer].bytes != purpose) watch(rank_);
      check_same_purpose(rank_, purpose, peer, contributions[peer].bytes);
      regions.push_back(contributions[peer].region);
    }
    return regions;
  }

  std::unique_ptr<Rendezvous> subgroup(const std::vector<int>& members,
                                       const Watch& watch) override {
    // Two meetings: all ranks agree on the number of the first, and none starts a third before all
    // have found the rendezvous of their sub-group.
    meet({}, watch);
    const auto rendezvous =
        members.empty() ? nullptr
                        : shared_->subgroup(members.front(), static_cast<int>(members.size()));
    meet({}, watch);
    if (rendezvous == nullptr) return nullptr;
    const auto me = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<Rank>(rendezvous, static_cast<int>(me - members.begin()), timeout_);
  }

  std::unique_ptr<Rendezvous> regroup(const std::vector<int>& members,
                                      Regrouping::Exchange exchange,
                                      const Watch& /*watch*/) override {
    const bool leads = members.front() == rank_;
    const std::string name = exchange(leads ? shared_->make_name() : "").front();
    const auto rendezvous = shared_->find_named(name, static_cast<int>(members.size()));
    const auto me = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<Rank>(rendezvous, static_cast<int>(me - members.begin()), timeout_);
  }

  // A thread that ends leaves the group.
  bool has_ended(int /*peer*/) const override { return false; }
  std::string describe(int /*peer*/) const override { return "a thread of this process"; }

 private:
  std::vector<Contribution> meet(Contribution mine, const Watch& watch) {
    return shared_->meet(rank_, std::move(mine), timeout_, watch);
  }

  std::shared_ptr<ThreadRendezvous> shared_;
  int rank_;
  base::Nanoseconds timeout_;
};

std::unique_ptr<Rendezvous> join(std::shared_ptr<ThreadRendezvous> rendezvous, int rank,
                                 base::Nanoseconds timeout) {
  return std::make_unique<ThreadRendezvous::Rank>(std::move(rendezvous), rank, timeout);
}

}  // namespace plait::comm::threads
