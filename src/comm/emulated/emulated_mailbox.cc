#include "comm/emulated/emulated_mailbox.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace plait::comm {
namespace {

constexpr std::size_t kPrefix = 64;  // a line, so that payloads stay aligned

class EmulatedMailbox final : public MailboxBase {
 public:
  EmulatedMailbox(std::unique_ptr<MailboxBase> inner, const MailboxDesc& desc, LinkView link)
      : MailboxBase(inner->group(), desc),
        inner_(std::move(inner)),
        link_(std::move(link)),
        sent_(static_cast<std::size_t>(desc.slots) * link_.ranks.size()) {}

  // A peer cannot have released a chunk that has not arrived yet.
  bool vacant(int peer, int slot) override {
    check_channel("vacant", peer, slot);
    const Nanoseconds due = room_due_of(peer, slot);
    if (due == kNever) return inner_->vacant(peer, slot);
    note(due);
    return false;
  }

  Nanoseconds room_due_of(int peer, int slot) override {
    const Nanoseconds due = sent(peer, slot).due[0];
    return due <= base::now() ? kNever : due;
  }

  std::byte* outbox(int peer, int slot) override {
    check_channel("outbox", peer, slot);
    if (!vacant(peer, slot)) wait_vacant(peer, slot);
    return inner_->outbox(peer, slot) + kPrefix;
  }

  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override {
    check_channel("post", peer, slot);
    check_bytes(slot, bytes);
    if (!vacant(peer, slot)) wait_vacant(peer, slot);
    // A rank's chunk for itself travels no link.
    const Nanoseconds due = peer == group().rank() ? 0 : link_.book(peer, bytes);
    if (group().trace() != nullptr && due != 0) record(due, {peer, tag.chunk, bytes});
    std::memcpy(inner_->outbox(peer, slot), &due, sizeof(due));
    inner_->post(peer, slot, tag, bytes + kPrefix);
    Sent& last = sent(peer, slot);
    last = {.due = {last.due[1], due}};
  }

  bool arrived(int source, int slot, const Tag& tag) override {
    const Nanoseconds due = due_of(source, slot, tag);
    if (due == kNever) return false;
    if (due <= base::now()) return true;
    note(due);
    return false;
  }

  Nanoseconds due_of(int source, int slot, const Tag& tag) override {
    if (!inner_->arrived(source, slot, tag)) return kNever;
    return due_in(inner_->inbox(source, slot));
  }

  const std::byte* inbox(int source, int slot) override {
    const std::byte* chunk = inner_->inbox(source, slot);
    check_arrived("inbox", due_in(chunk) <= base::now(), source, slot);
    return chunk + kPrefix;
  }
  std::size_t inbox_bytes(int source, int slot) override {
    const std::size_t bytes = inner_->inbox_bytes(source, slot);
    check_arrived("inbox_bytes", due_in(inner_->inbox(source, slot)) <= base::now(), source, slot);
    return bytes - kPrefix;
  }
  void release(int source, int slot) override { inner_->release(source, slot); }
  void progress() override { inner_->progress(); }
  void check_next(int source, int slot, const Tag& tag) override {
    inner_->check_next(source, slot, tag);
  }
  void help() override { inner_->help(); }
  std::size_t held_bytes() const override { return inner_->held_bytes(); }

  // Relaxed: a hint for how long to sleep, and a lost one costs a nap of the usual length.
  Nanoseconds take_due() override { return due_.exchange(kNever, std::memory_order_relaxed); }

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
    group().trace()->flight(
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
  Sent& sent(int peer, int slot) { return sent_[peer * desc().slots + slot]; }

  static Nanoseconds due_in(const std::byte* chunk) {
    Nanoseconds due = 0;
    std::memcpy(&due, chunk, sizeof(due));
    return due;
  }

  void note(Nanoseconds due) {
    Nanoseconds known = due_.load(std::memory_order_relaxed);
    while (due < known && !due_.compare_exchange_weak(known, due, std::memory_order_relaxed)) {
    }
  }

  std::unique_ptr<MailboxBase> inner_;
  LinkView link_;
  std::vector<Sent> sent_;  // by channel
  std::atomic<Nanoseconds> due_{kNever};
};

}  // namespace

std::unique_ptr<MailboxBase> make_emulated_mailbox(std::unique_ptr<MailboxBase> inner,
                                                   const MailboxDesc& desc, LinkView link) {
  return std::make_unique<EmulatedMailbox>(std::move(inner), desc, std::move(link));
}

MailboxDesc widened(const MailboxDesc& desc) {
  MailboxDesc wide = desc;
  wide.slot_bytes += kPrefix;
  return wide;
}

}  // namespace plait::comm
