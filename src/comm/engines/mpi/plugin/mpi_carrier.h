// Carries chunks as messages of MPI, over two communicators: frames, with the bytes of a small
// chunk, and the bytes of larger ones, which go straight to their place.
//
// Sends are synchronous: one that is done has been received. MPI has nothing that a thread could
// sleep at, so one that sleeps looks again when a timer ends.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "comm/control/carrier.h"

namespace plait::comm::mpi {

class MpiCarrier final : public tcp::Carrier {
 public:
  struct Comms {
    MPI_Comm frames;
    MPI_Comm payloads;
  };
  // `tag` is that of no other carrier of these communicators.
  MpiCarrier(const Comms& comms, int tag, int me, int processes);
  ~MpiCarrier() override;

  std::string_view name() const override { return "mpi"; }
  std::string route_to(int process) const override;
  std::shared_ptr<const void> hold(const base::Region& memory) override;
  void send(int process, const tcp::Frame& frame, const std::byte* payload,
            std::shared_ptr<const void> owner) override;
  bool move(const tcp::Connection::Find& find) override;
  std::uint32_t sent_to(int process) const override { return peers_[process].sent; }
  std::uint32_t come_from(int process) const override { return peers_[process].come; }
  bool is_sent(int process) const override;
  bool is_received(int process, std::uint32_t count) override;
  void note_credit(int /*process*/) override {}
  const std::string& error_of(int process) const override { return peers_[process].error; }
  int descriptor() const override { return timer_.get(); }
  bool arm() override;

 private:
  // Memory that MPI uses until the requests are done.
  struct Transfer {
    std::vector<std::byte> words;  // a frame, and the bytes of a small chunk
    std::shared_ptr<const void> memory;  // of larger ones; null: none
    std::vector<MPI_Request> requests;

    bool is_done();
  };
  struct Incoming : Transfer {
    tcp::Frame frame;
    bool has_frame = false;  // and has asked for the bytes
  };
  // Counts are of chunks, and go on at 0 after the largest number.
  struct Peer {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;  // of these, by the peer
    std::uint32_t come = 0;      // from the peer
    std::deque<Transfer> outgoing = {};
    std::deque<Incoming> incoming = {};
    std::string error = {};
  };
  class Unfinished;

  bool expect_frame();
  bool advance(int process, const tcp::Connection::Find& find);
  void read_frame(int process, Incoming& chunk, const tcp::Connection::Find& find);
  void fetch(int process, Incoming& chunk, std::byte* place);
  void note_error(const std::string& why);

  Comms comms_;
  int tag_;
  int me_;
  std::vector<Peer> peers_;  // by process
  base::Fd timer_;
};

}  // namespace plait::comm::mpi
