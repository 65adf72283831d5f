// A group whose ranks learn about each other only by messages.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/core/end_records.h"
#include "comm/core/group.h"
#include "comm/core/whereabouts.h"
#include "comm/engines/mpi/plugin/chunk_counts.h"
#include "comm/engines/mpi/plugin/local_processes.h"
#include "comm/engines/mpi/plugin/members.h"
#include "comm/engines/mpi/plugin/notices.h"

namespace plait::comm::mpi {

class MpiGroup final : public Group {
 public:
  MpiGroup(Members members, std::shared_ptr<const LocalProcesses> local_processes,
           const WaitPolicy& policy);

  // Does what descend_from() does, and hears the parent's notices from now on.
  void split_off(const std::shared_ptr<MpiGroup>& parent, const std::vector<int>& ranks);

  const Members& members() const { return members_; }
  const std::shared_ptr<const LocalProcesses>& local_processes() const { return local_processes_; }

  bool has_left(int peer) const {
    return left_at_[peer].load(std::memory_order_acquire) != 0;  // pairs with hear()
  }

  // For so long, messages that a peer sent before a notice may still arrive after it.
  static constexpr Nanoseconds kUnderWay = base::kSecond;

  // True if the peer left so long ago that what it brought to a set-up before has arrived.
  bool is_long_gone(int peer) const;

  ChunkCounts& chunks() { return chunks_; }

  // Around an exchange of set-up messages: tells the others in which call this rank is, and finds
  // those that have not told theirs. Fails the group where one is in another call.
  void begin_set_up();
  std::vector<int> find_missing_set_ups();
  void end_set_up();

  // True if one of the peers has told that ranks are in different calls, and is not in this set-up:
  // a peer's notices come in order.
  bool can_never_bring(const std::vector<int>& missing) const;

  // Receives the notices of the peers.
  void listen();

  // Like listen(), and polls each process, about 1 µs a peer: fails the group where a process
  // of this host has died. `doing` begins the sentence: what this rank does meanwhile.
  void poll_peers(base::FunctionRef<std::string()> doing);
  void poll_peers();

  // Called when all members have sent their last notice: true when no receive is posted any more,
  // which the group's end must wait for.
  bool has_stopped_listening();

  // A mailbox is known to all its members by the same number. This rank tells them that it sends
  // nothing more through it, and all that it has sent has been taken up.
  void send_closed(int mailbox) noexcept;
  bool all_others_have_closed(int mailbox) const;
  void forget(int mailbox) noexcept;

  void leave() noexcept;

  // No peer could read an announcement or a wait: tags travel with chunks and set-up messages.
  void announce(const Tag& tag) noexcept override { announcer_.call(tag); }
  int begin_waiting(const Awaited& /*awaited*/, int ticket) noexcept override { return ticket; }
  void end_waiting(int /*ticket*/) noexcept override {}
  void give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) override;
  void sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) override;

 protected:
  void examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) override;
  bool has_ended(End end) const noexcept override { return records_.has(end); }
  void end(End end, const Failure& failure) noexcept override;
  Failure record_of(End end) const override { return records_.get(end); }

 private:
  bool all_others_have_left() const;
  bool has_all_it_sent(int peer) { return chunks_.have_come(peer, sent_at_farewell_[peer]); }

  // A peer's part of a set-up agreement: its call, and after how many chunks it comes.
  struct SetUp {
    Tag call;
    std::uint32_t chunks;
  };
  std::optional<SetUp> set_up_of(int peer) const;  // the next one
  void compare_set_ups(const Awaited& awaited, base::FunctionRef<bool()> ready);

  bool report(const Failure& failure) noexcept;  // see is_recorded_elsewhere()
  void record_for(int peer, Notice notice) noexcept;
  void send(const std::vector<int>& peers, Notice notice) noexcept;
  void send(int peer, const Notice& notice) noexcept { send(std::vector{peer}, notice); }
  void expect_notice();
  void receive(const Notice& notice, int peer);
  void announce_all(const Notice& notice) noexcept;
  void adopt(End end, const Notice& notice) noexcept;

  Members members_;
  std::shared_ptr<const LocalProcesses> local_processes_;
  std::vector<std::atomic<Nanoseconds>> left_at_;  // 0: is here
  std::vector<std::atomic<bool>> has_told_mismatch_;
  EndRecords records_;
  std::shared_ptr<MpiGroup> parent_;

  Shown shown_ = {};  // to this rank alone
  Announcer announcer_{shown_};

  ChunkCounts chunks_;

  // Under hold_mpi().
  Notice heard_ = {.kind = Notice::Kind::farewell};
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  bool stopped_ = false;

  mutable std::mutex set_ups_mutex_;
  std::vector<std::deque<SetUp>> set_ups_;       // by peer, oldest first
  std::vector<std::uint32_t> sent_at_farewell_;  // by peer: written before left_at_

  mutable std::mutex closings_mutex_;
  std::map<int, std::vector<bool>> closings_;  // by mailbox, then peer; may come before its own
};

// Lets go of the group once all its members have left or it has failed: until then there are
// farewells to be heard, which would otherwise lie in MPI's queues for ever.
void release_later(std::shared_ptr<MpiGroup> group) noexcept;

}  // namespace plait::comm::mpi
