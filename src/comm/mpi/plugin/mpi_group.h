// A group whose ranks learn about each other only by messages.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/end_records.h"
#include "comm/group.h"
#include "comm/mpi/plugin/local_processes.h"
#include "comm/mpi/plugin/members.h"

namespace plait::comm::mpi {

// The notices that a rank sends to the others of its group.
struct Notice {
  enum class Kind { failure, abort, farewell, closing };
  Kind kind;
  int mailbox = 0;               // closing: of which mailbox (see MpiGroup::say_closed)
  Code code = Code::peer_lost;   // failure, abort: why
  int culprit = Error::kNoRank;  // and by which rank
  std::array<char, 500> sentence = {};
};

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

  // Whether the peer left so long ago that all that it sent before has arrived.
  bool is_long_gone(int peer) const;

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
  void say_closed(int mailbox) noexcept;
  bool all_others_have_closed(int mailbox) const;
  void forget(int mailbox) noexcept;

  void leave() noexcept;

  // No peer could read an announcement or a wait: tags travel with the chunks.
  void announce(const Tag& /*tag*/) noexcept override {}
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
  bool is_setting_up(const Awaited& awaited);
  void expect_notice();
  void hear(const Notice& notice, int peer);
  void tell_all(const Notice& notice) noexcept;
  void adopt(End end, const Notice& notice) noexcept;

  Members members_;
  std::shared_ptr<const LocalProcesses> local_processes_;
  std::vector<std::atomic<Nanoseconds>> left_at_;  // 0: is here
  EndRecords records_;
  std::shared_ptr<MpiGroup> parent_;

  // A set-up message of the peer that is waited for, as it was first seen in this call. Calls are
  // made by one thread at a time.
  struct Seen {
    int peer = Error::kNoRank;
    std::uint32_t call = 0;
    Nanoseconds at = 0;  // 0: there is none
  };
  Seen seen_;

  // Under hold_mpi().
  Notice heard_ = {.kind = Notice::Kind::farewell};
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  bool stopped_ = false;

  mutable std::mutex closings_mutex_;
  std::map<int, std::vector<bool>> closings_;  // by mailbox, then peer; may come before its own
};

// Lets go of the group once all its members have left or it has failed: until then there are
// farewells to be heard, which would otherwise lie in MPI's queues for ever.
void release_later(std::shared_ptr<MpiGroup> group) noexcept;

}  // namespace plait::comm::mpi
