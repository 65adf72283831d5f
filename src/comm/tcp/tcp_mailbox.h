// A mailbox between processes whose memory can't be mapped. The sender writes a chunk into memory
// of its own, from where the kernel takes it; the receiver's kernel puts it where it is read.
//
// Each channel has room for two chunks at both ends, which is the sender's credit: a chunk goes out
// without asking, and its release gives the credit back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/region.h"
#include "base/round_up.h"
#include "comm/mailbox_base.h"
#include "comm/tcp/tcp_group.h"

namespace plait::comm::tcp {

class TcpMailbox final : public MailboxBase, public Receiver {
 public:
  // Its number is to be told to the other ranks; then set_numbers() says theirs.
  TcpMailbox(std::shared_ptr<TcpGroup> group, const MailboxDesc& desc);
  ~TcpMailbox() override;

  std::uint32_t number() const { return number_; }
  void set_numbers(std::vector<std::uint32_t> numbers) { numbers_ = std::move(numbers); }

  bool vacant(int peer, int slot) override;
  std::byte* outbox(int peer, int slot) override;
  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override;
  bool arrived(int source, int slot, const Tag& tag) override;
  const std::byte* inbox(int source, int slot) override;
  std::size_t inbox_bytes(int source, int slot) override;
  void release(int source, int slot) override;
  void check_next(int source, int slot, const Tag& tag) override;
  void help() override { mesh().move_now_and_then(); }
  std::size_t held_bytes() const override { return memory_.bytes(); }

  std::byte* place_for(int process, const Frame& frame) override;
  bool receive(int process, const Frame& frame, std::string text) override;

 private:
  // Chunk n of a channel lies in place n % 2, and the first is chunk 1.
  struct Outgoing {
    std::atomic<std::uint64_t> posted{0};    // relaxed: by the thread that uses the channel
    std::atomic<std::uint64_t> released{0};  // by the receiver
  };
  struct Incoming {
    std::atomic<std::uint64_t> arrived{0};
    std::atomic<std::uint64_t> taken{0};  // released here
    Frame frames[2] = {};
  };

  Mesh& mesh() { return *group_->mesh(); }
  std::size_t channel_of(int peer, int slot) const {
    return static_cast<std::size_t>(peer) * desc().slots + slot;
  }
  Outgoing& outgoing(int peer, int slot) { return outgoing_[channel_of(peer, slot)]; }
  Incoming& incoming(int peer, int slot) { return incoming_[channel_of(peer, slot)]; }
  std::size_t stride() const { return base::round_up(desc().slot_bytes, 64); }

  // A rank posts to itself where it reads.
  std::byte* place_in(int source, int slot, std::uint64_t chunk) const;
  std::byte* place_out(int peer, int slot, std::uint64_t chunk) const;

  bool has_room(int peer, int slot);
  bool has_come(int source, int slot);
  const Frame& next_frame(int source, int slot);
  void send_rest() noexcept;

  std::shared_ptr<TcpGroup> group_;
  std::vector<std::uint32_t> numbers_;
  base::Region memory_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::uint32_t number_;  // last: from its making on chunks may come
};

}  // namespace plait::comm::tcp
