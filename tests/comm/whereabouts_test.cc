#include "comm/core/whereabouts.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace plait::comm {
namespace {

TEST(AnnouncedCall, IsEmptyAtFirst) {
  AnnouncedCall zeroed{};
  AnnouncedCall* const call = &zeroed;
  Tag tag;
  EXPECT_FALSE(call->read(tag));
  call->write({.operation = Operation::split, .call = 3});
  ASSERT_TRUE(call->read(tag));
  EXPECT_EQ(tag, (Tag{.operation = Operation::split, .call = 3}));
}

// Every tag is written with one number in all its fields: none may be read half.
TEST(AnnouncedCall, IsReadWholeWhileItChanges) {
  AnnouncedCall zeroed{};
  AnnouncedCall* const call = &zeroed;
  std::atomic<bool> done{false};
  std::jthread writer([&] {
    for (std::uint32_t n = 1; n < 200'000; ++n)
      call->write({.call = n, .chunk = n, .plan = n, .sizes = {n, n, n}});
    done.store(true, std::memory_order_relaxed);
  });
  std::uint32_t last = 0;
  Tag tag;
  while (!done.load(std::memory_order_relaxed)) {
    if (!call->read(tag)) continue;
    ASSERT_EQ(tag, (Tag{.call = tag.call,
                        .chunk = tag.call,
                        .plan = tag.call,
                        .sizes = {tag.call, tag.call, tag.call}}));
    ASSERT_GE(tag.call, last);
    last = tag.call;
  }
  writer.join();
  ASSERT_TRUE(call->read(tag));
  EXPECT_EQ(tag.call, 199'999U);
}

TEST(AnnouncedWait, NamesWhoIsWaitedForAndBeats) {
  AnnouncedWait zeroed{};
  AnnouncedWait* const wait = &zeroed;
  EXPECT_EQ(wait->read().peer, -1);
  wait->begin(0);
  const Wait first = wait->read();
  EXPECT_EQ(first.peer, 0);
  wait->renew(3);
  EXPECT_EQ(wait->read().peer, 3);
  EXPECT_NE(wait->read().beat, first.beat);
  EXPECT_EQ(wait->read().start, first.start);
  wait->begin(65'535);
  EXPECT_EQ(wait->read().peer, 65'535);
  EXPECT_NE(wait->read().start, first.start);
  wait->end();
  EXPECT_EQ(wait->read().peer, -1);
}

// The whereabouts of a rank that waits for these ranks, one thread for each.
Whereabouts waiting(const std::vector<int>& peers, std::uint16_t beat) {
  Whereabouts where;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    where.waits[i] = {.peer = peers[i], .start = 1, .beat = beat};
  }
  return where;
}

TEST(FindLate, FollowsWaitsToTheOneThatWaitsForNone) {
  const std::vector<Whereabouts> before = {waiting({1}, 1), waiting({2}, 1), waiting({3}, 1), {}};
  const std::vector<Whereabouts> after = {waiting({1}, 2), waiting({2}, 2), waiting({3}, 2), {}};
  EXPECT_EQ(find_late(before, after, 1, 0), 3);
}

TEST(FindLate, StopsAtOneWhoseBeatStandsStill) {
  const std::vector<Whereabouts> before = {waiting({1}, 1), waiting({2}, 1), waiting({3}, 1), {}};
  const std::vector<Whereabouts> after = {waiting({1}, 2), waiting({2}, 2), waiting({3}, 1), {}};
  EXPECT_EQ(find_late(before, after, 1, 0), 2);
}

TEST(FindLate, EndsWhereRanksWaitForEachOther) {
  const std::vector<Whereabouts> before = {waiting({1}, 1), waiting({2}, 1), waiting({1}, 1)};
  const std::vector<Whereabouts> after = {waiting({1}, 2), waiting({2}, 2), waiting({1}, 2)};
  EXPECT_EQ(find_late(before, after, 1, 0), 1);
}

TEST(FindLate, BearsRanksThatAreNone) {
  const std::vector<Whereabouts> before = {{}, waiting({-7, 99}, 1)};
  const std::vector<Whereabouts> after = {{}, waiting({-7, 99}, 2)};
  EXPECT_EQ(find_late(before, after, 1, 0), 1);
}

TEST(Announcer, GivesEachThreadATicketWhileThereAreAny) {
  Shown shown{};
  Announcer announcer(shown);
  std::set<int> tickets;
  for (int peer = 0; peer < kWaits; ++peer)
    tickets.insert(announcer.begin_waiting(peer, Announcer::kNoTicket));
  EXPECT_EQ(tickets.size(), static_cast<std::size_t>(kWaits));
  EXPECT_EQ(tickets.count(Announcer::kNoTicket), 0U);
  EXPECT_EQ(announcer.begin_waiting(9, Announcer::kNoTicket), Announcer::kNoTicket);
  EXPECT_TRUE(says_it_waits(read(shown)));
  for (const int ticket : tickets) announcer.end_waiting(ticket);
  EXPECT_FALSE(says_it_waits(read(shown)));
}

TEST(Announcer, KnowsItsLastCall) {
  Shown shown{};
  Announcer announcer(shown);
  EXPECT_EQ(announcer.last(), Tag{});
  announcer.call({.operation = Operation::split, .call = 5});
  announcer.rest();
  EXPECT_EQ(announcer.last(), (Tag{.operation = Operation::split, .call = 5}));
}

TEST(Announcer, FindsACallOfTheSameNumberThatDiffers) {
  Shown shown{};
  Announcer announcer(shown);
  const Tag mine = {.operation = Operation::all_reduce, .call = 5, .sizes = {8, 0, 0}};
  announcer.call(mine);
  announcer.call({.operation = Operation::barrier, .call = 6});
  EXPECT_EQ(announcer.find_mismatch(0, 1, mine), "");
  EXPECT_EQ(announcer.find_mismatch(0, 1, {.operation = Operation::barrier, .call = 7}), "");
  const std::string found =
      announcer.find_mismatch(0, 1, {.operation = Operation::barrier, .call = 5});
  EXPECT_NE(found.find("all_reduce: rank 0 and rank 1 disagree on the operator"), std::string::npos)
      << found;
}

}  // namespace
}  // namespace plait::comm
