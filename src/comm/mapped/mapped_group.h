// A group whose ranks have mapped each other's pages.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/core/blaming_group.h"
#include "comm/mapped/rank_page.h"
#include "comm/mapped/rendezvous.h"
#include "comm/survivors/regrouping.h"

namespace plait::comm {

class MappedGroup final : public BlamingGroup {
 public:
  // Collective: shares the pages.
  MappedGroup(const std::shared_ptr<Rendezvous>& rendezvous, const WaitPolicy& policy,
              const Rendezvous::Watch& watch);

  void rest() noexcept override { announcer_.rest(); }
  void show_started(Nanoseconds asked_at) noexcept override { announcer_.started(asked_at); }
  void compare_calls() override;
  void sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) override;

  // The parts of examine(), for callers that must not fail the group at once: whether a peer has
  // died; fails the group where one has; fails it where one is in another call.
  bool misses_one() const;
  void examine_lives(const Awaited* awaited);
  void examine_calls();

  void leave() noexcept;

  // See Regrouping. Throws Error{peer_lost} from check_regrouping() where one of the members has
  // died, or has said that it can't make the new group.
  Regrouping::Parts agree(const std::string& mine, Nanoseconds patience);
  void check_regrouping(const std::vector<int>& members);
  void withdraw() noexcept;

  // Wakes the peer if it sleeps: to be called right after the store that it is to see.
  void ring(int peer) noexcept { page(peer).doorbell.ring(); }

 protected:
  void show_elsewhere(const Elsewhere* elsewhere) noexcept override {
    announcer_.elsewhere(elsewhere);
  }
  void examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) override;
  bool has_ended(End end) const noexcept override {
    // Pairs with end(): a rank that sees it set may read the record.
    return page(0).ended_by[static_cast<std::size_t>(end)].load(std::memory_order_acquire) != 0;
  }
  void end(End end, const Failure& failure) noexcept override;
  Failure record_of(End end) const override;
  bool inquire() override { return false; }
  std::vector<Account> accounts() const override;
  std::string show_process(int rank) const override {
    return " (" + rendezvous_->describe(rank) + ")";
  }

 private:
  MappedGroup(const std::shared_ptr<Rendezvous>& rendezvous, const WaitPolicy& policy,
              std::vector<base::Region> regions);
  void record_first(End end, const Failure& failure) noexcept;
  RankPage& page(int rank) const { return *pages_[rank]; }
  bool has_left(int peer) const;
  bool has_died(int peer) const;
  void ring_all() noexcept;

  std::shared_ptr<Rendezvous> rendezvous_;
  std::vector<base::Region> regions_;
  std::vector<RankPage*> pages_;
  std::mutex recording_;
  std::uint64_t agreements_ = 0;
};

}  // namespace plait::comm
