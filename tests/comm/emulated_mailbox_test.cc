// When the chunks of an emulated link are said to be due.
#include "comm/emulated/emulated_mailbox.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "comm/threads/factory.h"

namespace plait::comm {
namespace {

// Threads that wait for different channels of a mailbox each sleep until their own chunk comes:
// what one is told, none takes from another.
TEST(EmulatedMailbox, KnowsWhenEachChannelsChunkIsDue) {
  const auto transport = threads::create({.place = {.rank = 0, .world = 1}});
  // A chunk for oneself travels no link, so the line before it that says when it is due is written
  // here.
  const MailboxDesc desc = {.slots = 3, .slot_bytes = 1000};
  auto inner = transport->make_mailbox(widened(desc));
  MailboxBase& wire = *inner;
  LinkView view = {.clock = std::make_shared<LinkClock>(Link{.bytes_per_second = 1e6}, 1),
                   .ranks = {0}};
  const auto mailbox = make_emulated_mailbox(std::move(inner), desc, std::move(view));
  constexpr Nanoseconds kHour = 3600 * base::kSecond;
  const Nanoseconds start = base::now();
  for (const int slot : {0, 1}) {
    const Nanoseconds due = start + (slot + 1) * kHour;
    std::byte* out = wire.outbox(0, slot);
    std::memcpy(out, &due, sizeof(due));
    wire.post(0, slot, {}, 64);
  }
  for (int times = 0; times < 2; ++times) {
    for (const int slot : {1, 0}) {
      EXPECT_FALSE(mailbox->arrived(0, slot, {}));
      EXPECT_EQ(mailbox->due_of(0, slot, {}), start + (slot + 1) * kHour);
    }
    EXPECT_EQ(mailbox->due_of(0, 2, {}), kNever);
    EXPECT_EQ(mailbox->take_due(), start + kHour);
    EXPECT_EQ(mailbox->take_due(), kNever);
  }
}

}  // namespace
}  // namespace plait::comm
