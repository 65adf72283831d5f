// Carries chunks as messages of MPI, over two communicators: frames, with the bytes of a small
// chunk, and the bytes of larger ones, which go straight to their place.
//
// A synchronous send is done when its receiver has it, and all frames before it: such a question is
// sent where a group waits for that. MPI has nothing that a thread could sleep at, so one that
// sleeps looks again when a timer ends.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "comm/control/carrier.h"
#include "comm/engines/mpi/plugin/frame_receives.h"
#include "comm/engines/mpi/plugin/local_processes.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

class MpiCarrier final : public tcp::Carrier {
 public:
  struct Comms {
    MPI_Comm frames;
    MPI_Comm payloads;
  };
  // `tag` is that of no other carrier of these communicators.
  MpiCarrier(const Comms& comms, int tag, int me,
             std::shared_ptr<const LocalProcesses> local_processes);
  ~MpiCarrier() override;

  std::string_view name() const override { return "mpi"; }
  std::string route_to(int process) const override;
  std::shared_ptr<const void> hold(const base::Region& memory) override;
  void send(int process, const tcp::Frame& frame, const std::byte* payload,
            std::shared_ptr<const void> owner) override;
  bool move(const tcp::Connection::Find& find) override;
  std::uint32_t sent_to(int process) const override { return peers_[process].sent; }
  std::uint32_t come_from(int process) const override { return peers_[process].come; }
  bool is_sent(int process) const override {
    return peers_[process].outgoing.empty() && peers_[process].held_back.empty();
  }
  bool is_received(int process, std::uint32_t count) override;
  bool takes_credits() const override { return true; }
  void note_credit(int /*process*/) override {}
  const std::string& error_of(int process) const override { return peers_[process].error; }
  int descriptor() const override { return timer_.get(); }
  bool arm() override;
  void note_failure() noexcept override { mpi::note_failure(); }

 private:
  // Memory that MPI uses until the requests are done.
  struct Transfer {
    std::unique_ptr<std::byte[]> words;  // a frame, and the bytes of a small chunk
    std::shared_ptr<const void> memory;  // of larger ones; null: none
    std::vector<MPI_Request> requests;

    bool is_done();
  };
  struct Incoming : Transfer {
    tcp::Frame frame;
  };
  // A frame for a process that may be ending.
  struct HeldBack {
    tcp::Frame frame;
    const std::byte* payload;
    std::shared_ptr<const void> owner;
  };
  // Counts are of frames, and go on at 0 after the largest number.
  struct Peer {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;  // of these, by the peer, as far as was asked
    std::uint32_t asked = 0;     // the last question is about so many
    std::uint32_t come = 0;      // from the peer
    std::deque<Transfer> outgoing = {};
    Transfer question = {};
    std::deque<Incoming> incoming = {};
    std::deque<HeldBack> held_back = {};
    base::Nanoseconds looked_at = 0;  // the time of the last look at its process
    base::Nanoseconds ending_since = 0;
    bool lacks_first_thread = false;  // the process goes on without it
    std::string error = {};
  };
  class Unfinished;

  bool may_send_to(int process);
  bool seems_to_end(int process);
  void send_now(int process, const tcp::Frame& frame, const std::byte* payload,
                std::shared_ptr<const void> owner);
  // Whatever it throws, requests that have begun are the transfer's.
  void begin(Transfer& transfer, int process, const tcp::Frame& frame, const std::byte* payload);
  void take(const FrameReceives::Received& frame, const tcp::Connection::Find& find);
  void read_frame(int process, std::span<const std::byte> bytes, const tcp::Connection::Find& find);
  void expect(int process, const tcp::Frame& frame, std::span<const std::byte> along,
              const tcp::Connection::Find& find);
  void fetch(int process, Incoming& chunk, std::byte* place);
  void hand_on(int process, const tcp::Frame& frame, const tcp::Connection::Find& find);
  bool advance(int process, const tcp::Connection::Find& find);
  void keep_words(Transfer& done);

  Comms comms_;
  int tag_;
  int me_;
  std::shared_ptr<const LocalProcesses> local_processes_;
  std::vector<Peer> peers_;  // by process
  std::shared_ptr<FrameReceives> receives_;
  base::Fd timer_;
  std::vector<std::unique_ptr<std::byte[]>> spare_words_;
  base::Nanoseconds moved_at_ = 0;
  base::Nanoseconds news_at_ = 0;
};

}  // namespace plait::comm::mpi
