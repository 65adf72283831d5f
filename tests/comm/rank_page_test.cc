#include "comm/mapped/rank_page.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "base/futex.h"

namespace plait::comm {
namespace {

using base::kSecond;

// Shared memory begins as zeros, and so does this.
template <class Part>
struct Zeroed {
  alignas(Part) std::array<std::byte, sizeof(Part)> bytes = {};
  Part& operator*() { return *reinterpret_cast<Part*>(bytes.data()); }
  Part* operator->() { return reinterpret_cast<Part*>(bytes.data()); }
};

// A sleeper that is not woken would make these tests run into their deadline.
constexpr base::Nanoseconds kVeryLong = 1000 * kSecond;

// A rank that was stopped for long may read a text that its owner is overwriting.
TEST(Standing, ATextMayBeReadTooLate) {
  Zeroed<Standing> standing;
  ASSERT_TRUE(standing->bring(1, "one"));
  const std::jthread late([&] {
    for (int turn = 0; turn < 1000; ++turn) EXPECT_LE(standing->text(1).size(), 5U);
  });
  for (std::uint64_t agreement = 2; agreement < 1000; ++agreement)
    ASSERT_TRUE(standing->bring(agreement, agreement % 4 == 1 ? "three" : "one"));
}

TEST(Standing, IsBroughtForEveryAgreementUntilItIsGivenUp) {
  Zeroed<Standing> standing;
  EXPECT_EQ(standing->part(1), Standing::Part::not_yet);
  EXPECT_TRUE(standing->bring(1, "one"));
  EXPECT_TRUE(standing->bring(2, "two"));
  EXPECT_EQ(standing->part(1), Standing::Part::brought);
  EXPECT_EQ(standing->text(1), "one");
  EXPECT_EQ(standing->text(2), "two");
  standing->give_up(2);  // too late
  EXPECT_EQ(standing->part(3), Standing::Part::not_yet);
  standing->give_up(3);
  EXPECT_FALSE(standing->bring(3, "three"));
  EXPECT_EQ(standing->part(2), Standing::Part::brought);
  EXPECT_EQ(standing->part(3), Standing::Part::given_up);
  EXPECT_EQ(standing->part(4), Standing::Part::given_up);
  EXPECT_EQ(standing->text(2), "two");
}

TEST(Standing, CutsALongText) {
  Zeroed<Standing> standing;
  EXPECT_TRUE(standing->bring(1, std::string(1000, 'x')));
  EXPECT_EQ(standing->text(1), std::string(Standing::kMostBytes, 'x'));
}

// The owner and two others come at the same time: all see the same, and the whole text.
TEST(Standing, IsTheSameForAll) {
  for (int round = 0; round < 2000; ++round) {
    Zeroed<Standing> standing;
    std::array<Standing::Part, 2> seen = {};
    bool is_brought = false;
    {
      std::jthread owner([&] { is_brought = standing->bring(1, "text"); });
      const auto give_up = [&](int which) {
        standing->give_up(1);
        seen[which] = standing->part(1);
        if (seen[which] == Standing::Part::brought) {
          EXPECT_EQ(standing->text(1), "text");
        }
      };
      std::jthread other([&] { give_up(1); });
      give_up(0);
    }
    const auto expected = is_brought ? Standing::Part::brought : Standing::Part::given_up;
    EXPECT_EQ(seen[0], expected);
    EXPECT_EQ(seen[1], expected);
  }
}

TEST(Doorbell, WhatIsReadyIsNotSleptFor) {
  Zeroed<Doorbell> bell;
  bell->sleep(kVeryLong, [] { return true; });
}

TEST(Doorbell, WakesASleeper) {
  base::register_for_heavy_fences();
  Zeroed<Doorbell> bell;
  std::atomic<int> flag{0};
  std::jthread sleeper([&] {
    while (flag.load(std::memory_order_acquire) == 0)  // pairs with the store below
      bell->sleep(kVeryLong, [&] { return flag.load(std::memory_order_acquire) != 0; });
  });
  flag.store(1, std::memory_order_release);  // pairs with the sleeper's loads
  bell->ring();
}

// A lost wake-up would be a sleep of kVeryLong.
TEST(Doorbell, LosesNoWakeUp) {
  base::register_for_heavy_fences();
  Zeroed<Doorbell> here;
  Zeroed<Doorbell> there;
  std::atomic<int> turn{0};
  const auto play = [&](Doorbell& mine, Doorbell& theirs, int parity) {
    for (int round = parity; round < 20'000; round += 2) {
      const auto ready = [&] { return turn.load(std::memory_order_acquire) >= round; };
      while (!ready()) mine.sleep(kVeryLong, ready);
      turn.store(round + 1, std::memory_order_release);  // pairs with ready()
      theirs.ring();
    }
  };
  std::jthread other([&] { play(*there, *here, 1); });
  play(*here, *there, 0);
}

TEST(Doorbell, SleepsNoLongerThanTold) {
  Zeroed<Doorbell> bell;
  bell->sleep(1000, [] { return false; });
  bell->sleep(0, [] { return false; });
  bell->sleep(-5, [] { return false; });
}

// Words that one rank writes often share no cache line with those of another.
TEST(RankPage, KeepsWritersApart) {
  EXPECT_EQ(sizeof(Doorbell) % kLine, 0U);
  EXPECT_EQ(offsetof(RankPage, shown) % kLine, 0U);
  EXPECT_EQ(offsetof(Shown, waits) % kLine, 0U);
  EXPECT_EQ(offsetof(Shown, sign) % kLine, 0U);
  EXPECT_EQ(offsetof(RankPage, left) % kLine, 0U);
  EXPECT_EQ(offsetof(RankPage, ended_by) % kLine, 0U);
  EXPECT_EQ(offsetof(RankPage, records) % kLine, 0U);
  EXPECT_LE(sizeof(RankPage), 4096U);
}

}  // namespace
}  // namespace plait::comm
