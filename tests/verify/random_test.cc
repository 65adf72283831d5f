#include "verify/random.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plait/operator.h"

namespace plait::verify {
namespace {

TEST(VerifyRandom, GivesTheSameNumbersForASeedAndANumber) {
  Random one(7, 3);
  Random same(7, 3);
  Random other(7, 4);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const std::int64_t value = one.below(1'000'000);
    EXPECT_EQ(same.below(1'000'000), value);
    equal += other.below(1'000'000) == value ? 1 : 0;
  }
  EXPECT_LT(equal, 3);
}

// Reports name a seed, and a reader on another platform must get the same case.
TEST(VerifyRandom, GivesTheSameNumbersOnEveryPlatform) {
  std::mt19937_64 engine(std::uint64_t{1} * 0x9e3779b97f4a7c15ULL + 2);
  engine.discard(8);
  Random random(1, 2);
  for (const std::int64_t end : {10, 3, 1 << 20})
    EXPECT_EQ(random.below(end), static_cast<std::int64_t>(engine() % static_cast<unsigned>(end)));
}

TEST(VerifyRandom, ReachesBothEndsOfARange) {
  Random random(1, 1);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(random.between(-1, 2));
  EXPECT_EQ(seen, (std::set<std::int64_t>{-1, 0, 1, 2}));
  EXPECT_EQ(random.between(5, 5), 5);
}

TEST(VerifyRandom, SizesAreTinyOddRoundAndLarge) {
  constexpr std::int64_t kMost = 1000;
  Random random(1, 1);
  std::map<std::string, int> kinds;
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t size = random_size(random, kMost);
    ASSERT_GE(size, 0);
    ASSERT_LE(size, kMost);
    if (size == 0) ++kinds["none"];
    if (size == 1) ++kinds["one"];
    if (size % 2 == 1 && size > 1) ++kinds["odd"];
    if (size % 64 == 0 && size > 0) ++kinds["round"];
    if (size > kMost / 2) ++kinds["large"];
  }
  for (const char* kind : {"none", "one", "odd", "round", "large"})
    EXPECT_GT(kinds[kind], 20) << kind;
}

TEST(VerifyRandom, SchemesAreOfEveryKind) {
  Random random(1, 1);
  std::set<std::pair<int, QuantPer>> kinds;
  for (int i = 0; i < 200; ++i) {
    const QuantScheme scheme = random_scheme(random);
    kinds.insert({scheme.bits, scheme.per});
    EXPECT_EQ(scheme.group > 0, scheme.per == QuantPer::group);
    EXPECT_EQ(parse_quant_scheme(name(scheme)), scheme);
  }
  EXPECT_EQ(kinds.size(), 6U);
}

TEST(VerifyRandom, PlansAreThoseThatTheOperatorHas) {
  for (const OperatorTraits& traits : kOperatorTraits) {
    if (!traits.communicates()) continue;
    const Operator op = *parse_operator(traits.name);
    Random random(1, 1);
    std::set<Schedule> schedules;
    for (int i = 0; i < 100; ++i) {
      const Plan plan = random_plan(random, op);
      schedules.insert(plan.schedule);
      EXPECT_TRUE(has_schedule(op, plan.schedule)) << name(plan);
      EXPECT_EQ(parse_plan(name(plan)), plan) << name(plan);
      EXPECT_TRUE(is_compute_first(op) || plan.axis == Axis::natural) << name(plan);
    }
    EXPECT_FALSE(schedules.contains(Schedule::serial));
    EXPECT_EQ(schedules.size(), traits.is_fused ? 2U : 1U) << traits.name;
  }
}

}  // namespace
}  // namespace plait::verify
