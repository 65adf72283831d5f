// What a mailbox relies on: the slots say no, and then nothing has changed.
#include "comm/mapped/mapped_slots.h"

#include <gtest/gtest.h>

#include "comm/threads/factory.h"
#include "comm/transport.h"

namespace plait::comm {
namespace {

class MappedSlotsTest : public testing::Test {
 protected:
  std::unique_ptr<Transport> transport_ = threads::create({.place = {.rank = 0, .world = 1}});
  std::unique_ptr<SlotTransport> slots_ = transport_->make_slots({.slots = 2, .slot_bytes = 64});
};

TEST_F(MappedSlotsTest, RefuseAThirdChunkOfAChannel) {
  const std::byte* first = slots_->outbox(0, 1).place;
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(slots_->post(0, 1, {.chunk = 1}, 10));
  const std::byte* second = slots_->outbox(0, 1).place;
  EXPECT_NE(second, first);
  EXPECT_TRUE(slots_->post(0, 1, {.chunk = 2}, 20));
  EXPECT_EQ(slots_->outbox(0, 1).place, nullptr);
  EXPECT_EQ(slots_->outbox(0, 1).due, kNever);
  EXPECT_FALSE(slots_->post(0, 1, {.chunk = 3}, 30));
  EXPECT_NE(slots_->outbox(0, 0).place, nullptr) << "the other channel has room";
  for (const std::uint32_t chunk : {1U, 2U}) {
    const Arrival came = slots_->inbox(0, 1);
    ASSERT_NE(came.data, nullptr);
    EXPECT_EQ(came.data, chunk == 1 ? first : second) << "written where it is read";
    EXPECT_EQ(came.bytes, 10 * chunk);
    EXPECT_EQ(came.tag->chunk, chunk);
    EXPECT_EQ(came.due, 0);
    EXPECT_TRUE(slots_->release(0, 1));
  }
  EXPECT_EQ(slots_->inbox(0, 1).data, nullptr) << "the refused chunk was not posted";
  EXPECT_EQ(slots_->outbox(0, 1).place, first);
}

TEST_F(MappedSlotsTest, ReleaseNothingWhereNothingHasCome) {
  EXPECT_FALSE(slots_->release(0, 0));
  EXPECT_TRUE(slots_->post(0, 0, {}, 0));
  EXPECT_TRUE(slots_->release(0, 0));
  EXPECT_FALSE(slots_->release(0, 0));
}

TEST_F(MappedSlotsTest, BringAnswersBackWhenTheChunkIsReleased) {
  EXPECT_TRUE(slots_->takes_answers());
  EXPECT_TRUE(slots_->post(0, 0, {}, 1));
  EXPECT_EQ(slots_->answer(0, 0), nullptr);
  *slots_->inbox(0, 0).data = std::byte{7};
  EXPECT_TRUE(slots_->release(0, 0));
  ASSERT_NE(slots_->answer(0, 0), nullptr);
  EXPECT_EQ(*slots_->answer(0, 0), std::byte{7});
}

TEST_F(MappedSlotsTest, HoldRoomForTwoChunksOfEachSlot) {
  EXPECT_GE(slots_->held_bytes(), std::size_t{2 * 2 * 64});
}

}  // namespace
}  // namespace plait::comm
