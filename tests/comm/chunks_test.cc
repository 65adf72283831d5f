#include "comm/collectives/chunks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "plait/collectives.h"
#include "plait/communicator.h"

namespace plait::comm {
namespace {

std::size_t received_bytes(int world) {
  const MailboxDesc desc = room_for(world).mailbox();
  return std::size_t{2} * desc.slots * desc.slot_bytes * static_cast<std::size_t>(world);
}

TEST(RoomFor, IsFullInSmallWorlds) {
  for (const int world : {1, 2, 3, 8, 16}) {
    EXPECT_EQ(room_for(world).chunk_bytes, kChunkBytes) << world;
    EXPECT_EQ(room_for(world).per_lane, kSlotsPerLane) << world;
  }
}

TEST(RoomFor, IsBoundedInLargeOnes) {
  for (int world = 1; world <= 1024; ++world) {
    EXPECT_LE(received_bytes(world), kReceivedBytes) << world;
    EXPECT_GE(room_for(world).chunk_bytes, kLeastChunkBytes) << world;
    EXPECT_EQ(kSlotsPerLane % room_for(world).per_lane, 0U) << world;
  }
  EXPECT_EQ(room_for(17).chunk_bytes, kChunkBytes / 2);
  EXPECT_EQ(room_for(128).per_lane, kSlotsPerLane);
  EXPECT_EQ(room_for(129).per_lane, kSlotsPerLane / 2);
  EXPECT_EQ(room_for(100000).per_lane, 1U);  // a chunk from each there must be
}

// What a large world holds is what was promised, and what it sums is
// right though chunks are smaller.
TEST(RoomFor, IsWhatACommunicatorHolds) {
  constexpr int kWorld = 20;
  constexpr int kRanks = kWorld * (kWorld - 1) / 2;  // 0 + 1 + ... + 19
  run_in_threads(kWorld, [](Communicator& comm) {
    EXPECT_LT(comm.mailbox_bytes(), kReceivedBytes);
    std::vector<float> data(200003);
    std::iota(data.begin(), data.end(), static_cast<float>(comm.rank()));
    all_reduce({data.data(), data.size()}, comm);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto expected = static_cast<float>(kWorld * i + kRanks);
      wrong += data[i] != expected ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0U);
  });
}

// The chunks of a stream in the room of a very large world.
TEST(Streams, GoThroughOneSlotOfALane) {
  run_in_threads(2, [](Communicator& comm) {
    const Room room = {.chunk_bytes = kLeastChunkBytes, .per_lane = 1};
    const auto made = comm.make_mailbox(room.mailbox());
    Mailbox::State& mailbox = made->state();
    std::vector<Cursor> cursors(2);
    std::uint64_t moves = 0;
    const Channels channels = {
        .mailbox = mailbox, .cursors = cursors, .moves = moves, .room = room};
    const int peer = 1 - comm.rank();
    std::vector<float> out(10000);
    std::iota(out.begin(), out.end(), static_cast<float>(comm.rank()));
    const Pieces pieces(out.size(), Dtype::f32, room);
    EXPECT_EQ(pieces.chunks(), 10U);
    for (const Way way : {Way::parts, Way::sums}) {
      std::vector<float> in(out.size());
      Sender sender(channels, peer, out.data(), pieces, way);
      Receiver receiver(channels, peer, pieces, way);
      wait_until(
          mailbox.group(),
          [&] {
            while (sender.send_next({})) continue;
            while (receiver.receive_next({}, reinterpret_cast<std::byte*>(in.data()))) continue;
            return sender.done() && receiver.done();
          },
          [] { return kNever; }, [&] { return receiver.awaited({}); });
      EXPECT_EQ(in.front(), static_cast<float>(peer));
      EXPECT_EQ(in.back(), static_cast<float>(peer) + 9999.0F);
    }
    // And with answers: each chunk comes back as it was sent.
    std::vector<float> back(out.size());
    Asker asker(channels, peer, out.data(), pieces);
    Receiver receiver(channels, peer, pieces);
    wait_until(
        mailbox.group(),
        [&] {
          for (bool moved = true; moved;) {
            moved = asker.send_next({});
            if (receiver.arrived({})) receiver.take(), moved = true;
            moved |= asker.receive_next(reinterpret_cast<std::byte*>(back.data()));
          }
          return asker.done() && receiver.done();
        },
        [] { return kNever; }, [&] { return receiver.awaited({}); });
    EXPECT_EQ(back, out);
    barrier(comm);
  });
}

}  // namespace
}  // namespace plait::comm
