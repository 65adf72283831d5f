#include "comm/emulated/emulated_mailbox.h"

#include <algorithm>
#include <cstring>

namespace plait::comm {
namespace {

constexpr std::size_t kPrefix = 64;  // a line, so that payloads stay aligned

class EmulatedMailbox final : public MailboxBase {
 public:
  EmulatedMailbox(std::unique_ptr<MailboxBase> inner, const MailboxDesc& desc, LinkView link)
      : MailboxBase(inner->group(), desc), inner_(std::move(inner)), link_(std::move(link)) {}

  bool vacant(int peer, int slot) override { return inner_->vacant(peer, slot); }
  std::byte* outbox(int peer, int slot) override { return inner_->outbox(peer, slot) + kPrefix; }

  void post(int peer, int slot, const Tag& tag, std::size_t bytes) override {
    check_channel("post", peer, slot);
    check_bytes(slot, bytes);
    // A rank's chunk for itself travels no link.
    const Nanoseconds due = peer == group().rank() ? 0 : link_.book(peer, bytes);
    std::memcpy(inner_->outbox(peer, slot), &due, sizeof(due));
    inner_->post(peer, slot, tag, bytes + kPrefix);
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
    Nanoseconds due = 0;
    std::memcpy(&due, inner_->inbox(source, slot), sizeof(due));
    return due;
  }

  const std::byte* inbox(int source, int slot) override {
    return inner_->inbox(source, slot) + kPrefix;
  }
  std::size_t inbox_bytes(int source, int slot) override {
    return inner_->inbox_bytes(source, slot) - kPrefix;
  }
  void release(int source, int slot) override { inner_->release(source, slot); }
  void progress() override { inner_->progress(); }
  std::size_t held_bytes() const override { return inner_->held_bytes(); }

  // Relaxed: a hint for how long to sleep, and a lost one costs a nap of the usual length.
  Nanoseconds take_due() override { return due_.exchange(kNever, std::memory_order_relaxed); }

 private:
  void note(Nanoseconds due) {
    Nanoseconds known = due_.load(std::memory_order_relaxed);
    while (due < known && !due_.compare_exchange_weak(known, due, std::memory_order_relaxed)) {
    }
  }

  std::unique_ptr<MailboxBase> inner_;
  LinkView link_;
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
