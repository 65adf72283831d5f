#include "comm/session/mailbox_cache.h"

#include <utility>

#include "comm/emulated/emulated_slots.h"

namespace plait::comm {

MailboxCache::MailboxCache(Transport& transport, const Membership& membership, TaskQueue& tasks)
    : transport_(transport), membership_(membership), tasks_(tasks) {}

void MailboxCache::open(std::optional<LinkView> link, const MailboxDesc& collectives) {
  link_ = std::move(link);
  // A program may have many groups, and call few collectives of few elements in most of them.
  of_collectives_ = build(collectives, Pages::when_touched);
}

std::unique_ptr<Mailbox> MailboxCache::make(const MailboxDesc& desc) {
  return std::make_unique<Mailbox>(
      make(desc, {.operation = Operation::make_mailbox,
                  .sizes = {desc.slots, static_cast<std::int64_t>(desc.slot_bytes)}}));
}

std::unique_ptr<Mailbox::State> MailboxCache::make(const MailboxDesc& desc, const Tag& why) {
  check_desc(desc, membership_.group().world());
  tasks_.begin_call(why);
  return build(desc, Pages::at_once);
}

std::unique_ptr<Mailbox::State> MailboxCache::build(const MailboxDesc& desc, Pages pages) try {
  Group& group = membership_.group();
  auto slots = transport_.make_slots(link_ ? widened(desc) : desc);
  if (pages == Pages::at_once) slots->populate();
  if (link_) slots = make_emulated_slots(std::move(slots), group, desc, *link_);
  return std::make_unique<Mailbox::State>(group, desc, std::move(slots), held_bytes_);
} catch (const Error& error) {
  membership_.fail_together(error);
}

Mailbox& MailboxCache::cached(const MailboxDesc& desc) {
  membership_.check_usable();
  for (const auto& [known, mailbox] : cached_) {
    if (known == desc) return *mailbox;
  }
  cached_.emplace_back(desc, make(desc));
  return *cached_.back().second;
}

Mailbox::State& MailboxCache::of_operators(const MailboxDesc& least, const MailboxDesc& wanted,
                                           const Tag& why) {
  membership_.check_usable();
  for (const auto& made : of_operators_) {
    if (made->desc().slots >= least.slots && made->desc().slot_bytes >= least.slot_bytes)
      return *made;
  }
  of_operators_.push_back(make(wanted, why));
  return *of_operators_.back();
}

void MailboxCache::clear() {
  cached_.clear();
  of_operators_.clear();
  of_collectives_.reset();
}

void MailboxCache::forget() {
  const auto leak = [](auto& owned) { [[maybe_unused]] const auto* leaked = owned.release(); };
  for (auto& [desc, mailbox] : cached_) leak(mailbox);
  for (auto& mailbox : of_operators_) leak(mailbox);
  leak(of_collectives_);
}

}  // namespace plait::comm
