// A group whose ranks hear of each other by frames, also those that share memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/mesh.h"
#include "comm/core/blaming_group.h"
#include "comm/core/end_records.h"
#include "comm/core/patience.h"
#include "comm/core/whereabouts.h"
#include "comm/survivors/agreements.h"

namespace plait::comm::tcp {

// The ranks of a group or mailbox: which process each is, and the number by which it receives.
struct Members {
  std::vector<int> processes;
  std::vector<std::uint32_t> numbers;
  int me = 0;

  int size() const { return static_cast<int>(processes.size()); }
  int rank_of(int process) const;  // -1: it is no member
};

class TcpGroup final : public BlamingGroup, public Receiver, public AgreementMessages {
 public:
  // `members.numbers` may come later, by set_numbers(): before anything is sent.
  TcpGroup(std::shared_ptr<Mesh> mesh, Members members, const WaitPolicy& policy);
  ~TcpGroup() override;

  const std::shared_ptr<Mesh>& mesh() const { return mesh_; }
  const Members& members() const { return members_; }
  std::uint32_t number() const { return number_; }
  void set_numbers(std::vector<std::uint32_t> numbers);

  // All that a peer has sent before it left is here by then: it came over the same connection.
  bool has_left(int peer) const {
    return has_left_[peer].load(std::memory_order_acquire);  // pairs with receive()
  }

  // For set-up: each rank's text to all others. Fails the group where ranks are in different calls.
  // Throws Error{timeout} naming those that are missing at the deadline.
  std::vector<std::string> all_gather(const std::string& mine);

  // For set-up: moves frames until what was sent to all others has gone, over a carrier too. Throws
  // like all_gather().
  void await_sent();

  void leave() noexcept;

  Agreements& agreements() { return agreements_; }
  void send_agreement(int peer, const std::string& text) noexcept override {
    send(peer, {.kind = Kind::agreement, .receiver = 0}, text);
  }
  std::uint64_t news() const override { return mesh_->news(); }
  void move() noexcept override { mesh_->move(); }
  void sleep(Nanoseconds until, std::uint64_t seen) override { mesh_->sleep(until, seen); }
  PeerState look_at(int peer) override;
  void give_up_on(int peer) noexcept override { mesh_->give_up_on(members_.processes[peer]); }

  // Waits for each other rank that is there until `is_done` says yes of its process. Fails the
  // group at the deadline. `doing` begins the sentence.
  void wait_for_peers(base::FunctionRef<bool(int process)> is_done,
                      base::FunctionRef<std::string(int peer)> doing) noexcept;

  // Fails the group where a process is lost. `doing` begins the sentence.
  void check_for_losses(base::FunctionRef<std::string()> doing);

  // Frames that were not urgent go out at the latest when a call is over, but for a lone credit for
  // a process to which the call has sent a chunk.
  void rest() noexcept override {
    announcer_.rest();
    mesh_->end_call();
  }
  std::vector<Unsent> unsent() override { return mesh_->unsent(); }
  bool is_sent(const std::vector<Unsent>& unsent, Patience& patience) override;
  void finish_sending(const std::vector<Unsent>& unsent) override;
  void show_started(Nanoseconds asked_at) noexcept override {
    announcer_.started(asked_at);
    mesh_->move_surely();
  }
  void sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) override;

  std::byte* place_for(int /*process*/, const Frame& /*frame*/) override { return nullptr; }
  bool receive(int process, const Frame& frame, std::string text) override;

 protected:
  // The peers may ask for it just now, over connections of which this thread waits for nothing.
  void show_elsewhere(const Elsewhere* elsewhere) noexcept override {
    announcer_.elsewhere(elsewhere);
    mesh_->move();
  }
  void examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) override;
  bool has_ended(End end) const noexcept override { return records_.has(end); }
  void end(End end, const Failure& failure) noexcept override;
  Failure record_of(End end) const override { return records_.get(end); }
  bool inquire() override;
  std::vector<Account> accounts() const override;
  std::string show_process(int rank) const override;

 private:
  void await_peers(base::FunctionRef<bool(int process)> is_done,
                   base::FunctionRef<std::string(int peer)> doing);
  bool are_done(Patience& patience, base::FunctionRef<bool(int process)> is_done,
                base::FunctionRef<std::string(int peer)> doing);
  bool is_taken(const std::vector<Unsent>& unsent, int process) const;
  std::string ending(int peer) const;
  void adopt(End end, const Failure& failure) noexcept;

  bool report(const Failure& failure) noexcept;  // see is_recorded_elsewhere()
  void record_for(int peer, const Failure& failure);
  void note_told(int peer, const Failure& failure) {
    if (failure.code == Code::mismatch)
      has_told_mismatch_[peer].store(true, std::memory_order_release);
  }

  void send(int peer, Frame frame, const std::string& text) noexcept;
  void announce_all(Kind kind, const std::string& text) noexcept;

  // A peer's part of a set-up agreement.
  struct Part {
    Tag call;
    std::string text;
  };
  bool has_brought(int peer) const;  // its part of the next one
  std::optional<Tag> call_of_set_up(int peer) const;
  void refuse_other_calls(const Tag& mine);
  void compare_set_ups(const Awaited& awaited, base::FunctionRef<bool()> ready);
  std::vector<int> find_missing();
  std::string find_wait_elsewhere(const Awaited& awaited, PublishedWait& published);
  bool can_never_bring(const std::vector<int>& missing);
  [[noreturn]] void refuse_for_missing(const std::vector<int>& missing,
                                       const std::string& where = "");

  void answer(int peer);
  bool note_answer(int peer, const std::string& text);
  void compare_answers();

  std::shared_ptr<Mesh> mesh_;
  Members members_;
  std::vector<std::atomic<bool>> has_left_;
  std::vector<std::atomic<bool>> has_told_mismatch_;
  EndRecords records_;
  Shown shown_ = {};                         // for a peer that asks
  std::atomic<Nanoseconds> inquired_at_{0};  // relaxed: by it no more is decided than when to ask
  Agreements agreements_;

  mutable std::mutex mutex_;             // for what follows; never held while the mesh is called
  std::vector<std::deque<Part>> parts_;  // by peer, oldest first
  std::vector<Account> answers_;

  std::uint32_t number_;  // last: from its making on frames may come
};

}  // namespace plait::comm::tcp
