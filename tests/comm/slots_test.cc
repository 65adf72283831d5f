#include "simulation/slots.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace plait::comm::modelled {
namespace {

const MailboxDesc kDesc = {.slots = 2, .slot_bytes = 100};

TEST(SlotsOfModelledRanks, AreApart) {
  Slots slots(kDesc, 3, /*without_storage=*/false);
  std::set<std::byte*> places;
  for (int source = 0; source < 3; ++source) {
    for (int destination = 0; destination < 3; ++destination) {
      for (int slot = 0; slot < 2; ++slot) {
        for (std::uint32_t number = 0; number < 2; ++number) {
          std::byte* place = slots.payload(source, destination, slot, number);
          std::memset(place, 7, kDesc.slot_bytes);
          places.insert(place);
        }
      }
    }
  }
  EXPECT_EQ(places.size(), 3U * 3 * 2 * 2);
  std::byte* last = nullptr;
  for (std::byte* place : places) {
    if (last != nullptr) {
      EXPECT_GE(place - last, 100);
    }
    last = place;
  }
  // A channel has room for two chunks, in turns.
  EXPECT_EQ(slots.payload(1, 2, 0, 5), slots.payload(1, 2, 0, 7));
}

TEST(SlotsOfModelledRanks, KnowWhenAChunkComes) {
  Slots slots(kDesc, 2, /*without_storage=*/true);
  EXPECT_EQ(slots.due(0, 1, 1), kNever);
  EXPECT_EQ(slots.room_at(0, 1, 1), 0);
  Slots::Channel& channel = slots.channel(0, 1, 1);
  channel.entry(1).due = 400;
  channel.posted = 1;
  slots.note_change(0, 1, 1);
  EXPECT_EQ(slots.due(0, 1, 1), 400);
  EXPECT_EQ(slots.due(1, 0, 1), kNever);
  EXPECT_EQ(slots.due(0, 1, 0), kNever);
  channel.released = 1;
  slots.note_change(0, 1, 1);
  EXPECT_EQ(slots.due(0, 1, 1), kNever);
}

TEST(SlotsOfModelledRanks, KeepTagsWhole) {
  Slots slots(kDesc, 2, /*without_storage=*/true);
  std::vector<Tag> tags;
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    for (const std::int64_t rows : {8, 9}) {
      Tag tag;
      tag.operation = Operation::all_reduce;
      tag.sizes[0] = rows;
      tag.chunk = chunk;
      tags.push_back(tag);
    }
  }
  for (const Tag& tag : tags) {
    Slots::Entry entry;
    entry.chunk = tag.chunk;
    entry.call = slots.number_of(tag);
    EXPECT_EQ(slots.tag_of(entry), tag);
  }
}

}  // namespace
}  // namespace plait::comm::modelled
