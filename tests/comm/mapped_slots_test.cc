// Properties that a mailbox relies on: the slots say no, and then nothing has changed.
#include "comm/mapped/mapped_slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/region.h"
#include "comm/core/transport.h"
#include "comm/engines/threads/factory.h"
#include "comm/mapped/mapped_channels.h"

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

// Ninety-six ranks that each mapped all pages of all regions took 25 s of processor time for two
// connections.
TEST(MappedChannels, HaveTheirOwnPagesOfAPeersRegion) {
  constexpr int kWorld = 16;
  const MailboxDesc desc = {.slots = 4, .slot_bytes = 256 << 10};
  const std::size_t bytes = MappedChannels::bytes_for(desc, kWorld);
  std::vector<base::Region> regions;
  regions.reserve(kWorld);
  for (int rank = 0; rank < kWorld; ++rank)
    regions.push_back(base::Region::map(base::make_anonymous_file("test", bytes), bytes, "a rank"));
  const MappedChannels channels(desc, 5, regions);
  channels.populate();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (int rank = 0; rank < kWorld; ++rank) {
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    ASSERT_EQ(::mincore(regions[rank].data(), bytes, pages.data()), 0);
    const auto there = static_cast<std::size_t>(std::count(pages.begin(), pages.end(), 1));
    const std::size_t of_one_source = 4 * 2 * (256 << 10) / page;
    const std::size_t wanted = of_one_source * (rank == 5 ? kWorld - 1 : 1);
    EXPECT_GE(there, wanted) << rank;
    EXPECT_LE(there, wanted + 16) << rank;
  }
}

TEST_F(MappedSlotsTest, HoldRoomForTwoChunksOfEachSlot) {
  EXPECT_GE(slots_->held_bytes(), std::size_t{2 * 2 * 64});
}

}  // namespace
}  // namespace plait::comm
