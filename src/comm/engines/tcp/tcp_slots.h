// The slots of a mailbox between processes of several hosts. Those of one host have mapped each
// other's memory, if they can (see comm/control/host_peers.h): a chunk is written where it is read.
// To other hosts the sender writes a chunk into memory of its own, from where the kernel takes it;
// the receiver's kernel puts it where it is read.
//
// Each channel to another host has room for two chunks at both ends, which is the sender's credit:
// a chunk goes out without asking, and its release gives the credit back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/region.h"
#include "base/round_up.h"
#include "comm/control/tcp_group.h"
#include "comm/core/slot_transport.h"
#include "comm/mapped/mapped_channels.h"

namespace plait::comm::tcp {

class TcpSlots final : public SlotTransport, public Receiver {
 public:
  // Its number is to be told to the other ranks; then set_peers() says theirs.
  TcpSlots(std::shared_ptr<TcpGroup> group, const MailboxDesc& desc);
  ~TcpSlots() override;

  std::uint32_t number() const { return number_; }

  // How many ranks of the group share memory, this one included.
  int near_ranks() const { return near_ranks_; }

  // Before any chunk is posted. `near`: the memory of the ranks that share it, in rank order.
  void set_peers(std::vector<std::uint32_t> numbers, std::vector<base::Region> near);

  Vacancy outbox(int peer, int slot) override;
  bool post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  Arrival inbox(int source, int slot) override;
  bool release(int source, int slot) override;
  void move() override { mesh().move_now_and_then(); }
  void move_surely() override { mesh().move_surely(); }
  void populate() override;
  std::size_t held_bytes() const override { return memory_.bytes() + near_.held_bytes(); }

  std::byte* place_for(int process, const Frame& frame) override;
  std::shared_ptr<const void> memory() override { return owner_; }
  bool receive(int process, const Frame& frame, std::string text) override;

 private:
  // Chunk n of a channel to or from another host lies in place n % 2, and the first is chunk 1.
  struct Outgoing {
    std::atomic<std::uint64_t> posted{0};    // relaxed: by the thread that uses the channel
    std::atomic<std::uint64_t> released{0};  // by the receiver
  };
  struct Incoming {
    std::uint64_t begun = 0;  // under the mesh's mutex: those that have a place
    std::atomic<std::uint64_t> arrived{0};
    std::atomic<std::uint64_t> taken{0};  // released here
    Frame frames[2] = {};
  };

  // The place of a peer's channels: in near_, or in the arrays of those on other hosts.
  struct Peer {
    bool is_near;
    int place;
  };

  Mesh& mesh() { return *group_->mesh(); }
  bool is_near(int peer) const { return peers_[peer].is_near; }
  int place_of(int peer) const { return peers_[peer].place; }
  std::size_t channel_of(int peer, int slot) const {
    return static_cast<std::size_t>(place_of(peer)) * desc_.slots + slot;
  }
  Outgoing& outgoing(int peer, int slot) { return outgoing_[channel_of(peer, slot)]; }
  Incoming& incoming(int peer, int slot) { return incoming_[channel_of(peer, slot)]; }
  std::size_t stride() const {
    return base::round_up(std::max(desc_.slot_bytes, std::size_t{1}),
                          64);  // every slot has a place
  }

  std::byte* place_in(int source, int slot, std::uint64_t chunk) const;
  std::byte* place_out(int peer, int slot, std::uint64_t chunk) const;

  bool has_room(int peer, int slot);
  bool has_come(int source, int slot);
  bool has_room_by_now(int peer, int slot);  // polls the connections where there is none
  Arrival next(int source, int slot);
  void send(int peer, int slot, const Tag& tag, std::size_t bytes);
  void send_credit(int source, int slot);
  void wake(int near_peer);
  void send_rest() noexcept;

  std::shared_ptr<TcpGroup> group_;
  MailboxDesc desc_;
  std::vector<Peer> peers_;
  int near_ranks_ = 0;
  MappedChannels near_;
  std::vector<std::uint32_t> numbers_;
  base::Region memory_;                // for chunks to and from other hosts
  std::shared_ptr<const void> owner_;  // of it, to be let go by the mesh
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::uint32_t number_;  // last: from its making on chunks may come
};

}  // namespace plait::comm::tcp
