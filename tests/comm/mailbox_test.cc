// A mailbox's additions to its slots, as far as the conformance suites do not show them.
#include "comm/core/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "comm/core/transport.h"
#include "comm/emulated/emulated_slots.h"
#include "comm/engines/threads/factory.h"
#include "conformance/ranks.h"

namespace plait::comm {
namespace {

constexpr MailboxDesc kOneSlot = {.slots = 1, .slot_bytes = 64};

// One rank, which exchanges chunks with itself.
class MailboxStateTest : public testing::Test {
 protected:
  Mailbox::State make(const MailboxDesc& desc, Mailbox::State::Account account = nullptr) {
    return {transport_->group(), desc, transport_->make_slots(desc), std::move(account)};
  }

  // Its chunks are due when the test says so.
  Mailbox::State make_emulated(SlotTransport*& wire) {
    auto inner = transport_->make_slots(widened(kOneSlot));
    wire = inner.get();
    LinkView view = {.clock = std::make_shared<LinkClock>(Link{.bytes_per_second = 1e9}, 1),
                     .ranks = {0}};
    Group& group = transport_->group();
    return {group, kOneSlot,
            make_emulated_slots(std::move(inner), group, kOneSlot, std::move(view))};
  }

  std::unique_ptr<Transport> transport_ = threads::create({.place = {.rank = 0, .world = 1}});
};

TEST_F(MailboxStateTest, RefusesWhatIsNoneOfItsChannels) {
  Mailbox::State mailbox = make(kOneSlot);
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.vacant(1, 0); }).what(),
               "vacant: there is no rank 1 in a world of 1");
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.arrived(0, 1, {}); }).what(),
               "arrived: slot 1 is not one of the mailbox's 1");
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.post(0, 0, {}, 65); }).what(),
               "post: a chunk of 65 bytes does not fit slot 0 of 64");
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.release(0, 0); }).what(),
               "release: the chunk in slot 0 from rank 0 has not arrived");
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.inbox_bytes(0, 0); }).what(),
               "inbox_bytes: the chunk in slot 0 from rank 0 has not arrived");
}

TEST_F(MailboxStateTest, CountsItsMemoryWhileItLives) {
  const auto account = std::make_shared<std::atomic<std::size_t>>(100);
  {
    const Mailbox::State mailbox = make(kOneSlot, account);
    EXPECT_GE(account->load(), 100U + 2 * 64);
  }
  EXPECT_EQ(account->load(), 100U);
}

TEST_F(MailboxStateTest, PoisonsTheWholeSlotAndTakesNoAnswers) {
  Mailbox::State mailbox = make({.slots = 1, .slot_bytes = 64, .poison = true});
  EXPECT_FALSE(mailbox.takes_answers());
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.answer_box(0, 0); }).what(),
               "answer_box: this mailbox takes no answers");
  std::byte* const place = mailbox.outbox(0, 0);
  std::fill_n(place, 64, std::byte{1});
  mailbox.post(0, 0, {}, 3);
  mailbox.release(0, 0);
  EXPECT_TRUE(std::all_of(place, place + 64, [](std::byte b) { return b == std::byte{0xA5}; }));
}

TEST_F(MailboxStateTest, RefusesChunksOfAnotherSizeOrCall) {
  Mailbox::State mailbox = make(kOneSlot);
  const Tag tag = {.operation = Operation::broadcast, .call = 4, .chunk = 2};
  mailbox.post(0, 0, tag, 8);
  EXPECT_NO_THROW(mailbox.check_size(0, 0, tag, 8));
  Tag next = tag;
  next.chunk = 0;
  EXPECT_NO_THROW(mailbox.check_next(0, 0, next)) << "another chunk of the same call";
  next.call = 5;
  next.sizes[2] = 1;
  EXPECT_NO_THROW(mailbox.check_next(0, 0, next)) << "of another call, which will tell";
  EXPECT_STREQ(expect_error(Code::mismatch, [&] { mailbox.check_size(0, 0, tag, 9); }).what(),
               "broadcast: rank 0 and rank 0 disagree on the size of a chunk: 9 and 8 bytes");
}

TEST_F(MailboxStateTest, RefusesTheNextChunkOfItsCallWithAnotherTag) {
  Mailbox::State mailbox = make(kOneSlot);
  const Tag tag = {.operation = Operation::broadcast, .call = 4};
  mailbox.post(0, 0, tag, 8);
  Tag other = tag;
  other.sizes[2] = 1;
  expect_error(Code::mismatch, "broadcast: rank 0 and rank 0 disagree on",
               [&] { mailbox.check_next(0, 0, other); });
}

// A chunk on its way is not here yet, and a wait for it ends when it is.
TEST_F(MailboxStateTest, WaitsForWhatIsDue) {
  SlotTransport* wire = nullptr;
  Mailbox::State mailbox = make_emulated(wire);
  const Nanoseconds due = base::now() + 20 * base::kMillisecond;
  std::memcpy(wire->outbox(0, 0).place, &due, sizeof(due));
  ASSERT_TRUE(wire->post(0, 0, {}, 64));
  if (!mailbox.arrived(0, 0, {})) {
    EXPECT_EQ(mailbox.take_due(), due);
  }
  mailbox.wait_arrived(0, 0, {});
  EXPECT_GE(base::now(), due);
  EXPECT_EQ(mailbox.inbox_bytes(0, 0), 0U);
  mailbox.release(0, 0);
}

TEST_F(MailboxStateTest, ShowsNoChunkThatIsOnItsWay) {
  SlotTransport* wire = nullptr;
  Mailbox::State mailbox = make_emulated(wire);
  const Nanoseconds due = base::now() + 3600 * base::kSecond;
  std::memcpy(wire->outbox(0, 0).place, &due, sizeof(due));
  ASSERT_TRUE(wire->post(0, 0, {}, 64));
  EXPECT_STREQ(expect_error(Code::invalid_argument, [&] { mailbox.inbox(0, 0); }).what(),
               "inbox: the chunk in slot 0 from rank 0 has not arrived");
}

}  // namespace
}  // namespace plait::comm
