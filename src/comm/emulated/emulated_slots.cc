#include "comm/emulated/emulated_slots.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace plait::comm {
namespace {

constexpr std::size_t kPrefix = 64;  // a line, so that payloads stay aligned

class EmulatedSlots final : public SlotTransport {
 public:
  EmulatedSlots(std::unique_ptr<SlotTransport> inner, Group& group, int slots, LinkView link)
      : inner_(std::move(inner)),
        group_(group),
        slots_(slots),
        link_(std::move(link)),
        sent_(static_cast<std::size_t>(slots) * link_.ranks.size()) {}

  // A peer cannot have released a chunk that has not arrived yet.
  Vacancy outbox(int peer, int slot) override {
    const Nanoseconds due = sent(peer, slot).due[0];
    if (due > base::now()) return {.due = due};
    Vacancy room = inner_->outbox(peer, slot);
    if (room.place != nullptr) room.place += kPrefix;
    return room;
  }

  bool post(int peer, int slot, const Tag& tag, std::size_t bytes) override {
    std::byte* const out = outbox(peer, slot).place;
    if (out == nullptr) return false;
    // A rank's chunk for itself travels no link.
    const Nanoseconds due = peer == group_.rank() ? 0 : link_.book(peer, bytes);
    if (group_.trace() != nullptr && due != 0) record(due, {peer, tag.chunk, bytes});
    std::memcpy(out - kPrefix, &due, sizeof(due));
    inner_->post(peer, slot, tag, bytes + kPrefix);
    Sent& last = sent(peer, slot);
    last = {.due = {last.due[1], due}};
    return true;
  }

  Arrival inbox(int source, int slot) override {
    Arrival came = inner_->inbox(source, slot);
    if (came.data == nullptr) return came;
    std::memcpy(&came.due, came.data, sizeof(came.due));
    came.data += kPrefix;
    came.bytes -= kPrefix;
    return came;
  }

  bool release(int source, int slot) override { return inner_->release(source, slot); }
  void move() override { inner_->move(); }
  void move_surely() override { inner_->move_surely(); }
  std::size_t held_bytes() const override { return inner_->held_bytes(); }

 private:
  struct Transfer {
    int peer;
    std::uint32_t chunk;
    std::size_t bytes;
  };

  // The link is occupied from when it was free until it has taken the last byte.
  void record(Nanoseconds due, const Transfer& transfer) {
    const Link& link = link_.clock->link();
    const double carried = static_cast<double>(transfer.bytes) / link.bytes_per_second * 1e9;
    group_.trace()->flight(
        Lane::comm, "chunk",
        {.begin = due - link.latency_ns - static_cast<Nanoseconds>(carried), .end = due},
        {.bytes = static_cast<std::int64_t>(transfer.bytes),
         .peer = transfer.peer,
         .chunk = static_cast<std::int32_t>(transfer.chunk & INT32_MAX)});
  }

  // When the two chunks that a channel has room for arrive, the older one first.
  struct Sent {
    std::array<Nanoseconds, 2> due = {};
  };
  Sent& sent(int peer, int slot) { return sent_[peer * slots_ + slot]; }

  std::unique_ptr<SlotTransport> inner_;
  Group& group_;
  int slots_;
  LinkView link_;
  std::vector<Sent> sent_;  // by channel
};

}  // namespace

std::unique_ptr<SlotTransport> make_emulated_slots(std::unique_ptr<SlotTransport> inner,
                                                   Group& group, const MailboxDesc& desc,
                                                   LinkView link) {
  return std::make_unique<EmulatedSlots>(std::move(inner), group, desc.slots, std::move(link));
}

MailboxDesc widened(const MailboxDesc& desc) {
  MailboxDesc wide = desc;
  wide.slot_bytes += kPrefix;
  return wide;
}

}  // namespace plait::comm
