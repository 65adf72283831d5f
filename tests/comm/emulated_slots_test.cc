// When the chunks of an emulated link are said to be due.
#include "comm/emulated/emulated_slots.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "comm/core/mailbox.h"
#include "comm/core/transport.h"
#include "comm/engines/threads/factory.h"

namespace plait::comm {
namespace {

constexpr Nanoseconds kHour = 3600 * base::kSecond;

LinkView link_to_oneself() {
  return {.clock = std::make_shared<LinkClock>(Link{.bytes_per_second = 1e6}, 1), .ranks = {0}};
}

// Puts a chunk into the inner slots that is due then. A chunk for oneself travels no link, so the
// line before it that says when it is due is written here.
void post_due(SlotTransport& wire, int slot, Nanoseconds due) {
  std::memcpy(wire.outbox(0, slot).place, &due, sizeof(due));
  ASSERT_TRUE(wire.post(0, slot, {}, 64));
}

// Threads that wait for different channels of a mailbox each sleep until their own chunk comes:
// what one is told, none takes from another.
TEST(EmulatedSlots, SayWhenEachChannelsChunkIsDue) {
  const auto transport = threads::create({.place = {.rank = 0, .world = 1}});
  const MailboxDesc desc = {.slots = 3, .slot_bytes = 1000};
  auto inner = transport->make_slots(widened(desc));
  SlotTransport& wire = *inner;
  Group& group = transport->group();
  Mailbox::State mailbox(group, desc,
                         make_emulated_slots(std::move(inner), group, desc, link_to_oneself()));
  const Nanoseconds start = base::now();
  for (const int slot : {0, 1}) post_due(wire, slot, start + (slot + 1) * kHour);
  for (int times = 0; times < 2; ++times) {
    for (const int slot : {1, 0}) {
      EXPECT_FALSE(mailbox.arrived(0, slot, {}));
      EXPECT_EQ(mailbox.due_of(0, slot, {}), start + (slot + 1) * kHour);
    }
    EXPECT_EQ(mailbox.due_of(0, 2, {}), kNever);
    EXPECT_EQ(mailbox.take_due(), start + kHour);
    EXPECT_EQ(mailbox.take_due(), kNever);
  }
}

// The time travels before the chunk, and is none of it.
TEST(EmulatedSlots, HideTheLineBeforeTheChunk) {
  const auto transport = threads::create({.place = {.rank = 0, .world = 1}});
  const MailboxDesc desc = {.slots = 1, .slot_bytes = 8};
  const auto slots = make_emulated_slots(transport->make_slots(widened(desc)), transport->group(),
                                         desc, link_to_oneself());
  const std::uint64_t sent = 0x0123456789abcdef;
  std::memcpy(slots->outbox(0, 0).place, &sent, sizeof(sent));
  EXPECT_TRUE(slots->post(0, 0, {.chunk = 7}, sizeof(sent)));
  const Arrival came = slots->inbox(0, 0);
  ASSERT_NE(came.data, nullptr);
  std::uint64_t received = 0;
  std::memcpy(&received, came.data, sizeof(received));
  EXPECT_EQ(received, sent);
  EXPECT_EQ(came.bytes, sizeof(sent));
  EXPECT_EQ(came.tag->chunk, 7U);
  EXPECT_EQ(came.due, 0) << "it is here";
}

}  // namespace
}  // namespace plait::comm
