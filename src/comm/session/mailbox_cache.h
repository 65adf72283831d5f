// The mailboxes of a communicator: makes them over its link, and keeps those that calls share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/core/mailbox.h"
#include "comm/core/transport.h"
#include "comm/emulated/link_clock.h"
#include "comm/session/membership.h"
#include "comm/session/task_queue.h"

namespace plait::comm {

class MailboxCache {
 public:
  MailboxCache(Transport& transport, const Membership& membership, TaskQueue& tasks);

  // Collective: from now on mailboxes are made over `link`, and first that of the collectives.
  void open(std::optional<LinkView> link, const MailboxDesc& collectives);
  const std::optional<LinkView>& link() const { return link_; }
  Mailbox::State& of_collectives() { return *of_collectives_; }

  // Collective, and a call by itself.
  std::unique_ptr<Mailbox> make(const MailboxDesc& desc);

  // The one that was made here as `desc` says. Where there is none, makes it, which is collective.
  Mailbox& cached(const MailboxDesc& desc);

  // The mailbox that operators share: the first of their mailboxes, in the order in which they were
  // made, that is at least as large as `least`; where none is, one as `wanted` says is made, which
  // is collective. Which one it is follows from what all ranks have made together, and stays the
  // same. Ranks that disagree are told how their operators differ (`why`), and not their mailboxes.
  Mailbox::State& of_operators(const MailboxDesc& least, const MailboxDesc& wanted, const Tag& why);

  // The bytes of all of them, and of those that make() has given away.
  std::size_t held_bytes() const { return held_bytes_->load(std::memory_order_relaxed); }

  // They see to it that what was posted goes out.
  void clear();

  // Leaks them on purpose: in a forked child, which can't close what it shares with the ranks.
  void forget();

 private:
  std::unique_ptr<Mailbox::State> make(const MailboxDesc& desc, const Tag& why);
  enum class Pages : std::uint8_t { at_once, when_touched };
  std::unique_ptr<Mailbox::State> build(const MailboxDesc& desc, Pages pages);

  Transport& transport_;
  const Membership& membership_;
  TaskQueue& tasks_;
  std::optional<LinkView> link_;
  std::shared_ptr<std::atomic<std::size_t>> held_bytes_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::unique_ptr<Mailbox::State> of_collectives_;
  std::vector<std::pair<MailboxDesc, std::unique_ptr<Mailbox>>> cached_;
  std::vector<std::unique_ptr<Mailbox::State>> of_operators_;
};

}  // namespace plait::comm
