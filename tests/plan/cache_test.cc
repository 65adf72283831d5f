// Measured plans: what is written can be read again, and what can't be trusted is refused.
#include "plan/cache.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "plan/cache_example.h"
#include "tensor/sentence_of.h"

namespace plait::plan {
namespace {

std::string refusal_of(const std::string& text) {
  return sentence_of([&] { PlanCache::parse(text); });
}

TEST(PlanCaches, AreTextInOneOrder) {
  const std::string line =
      "op=matmul_all_reduce m=16 n=64 k=64 x=bf16 w=bf16 out=bf16 wire=f32 "
      "ranks=2 transport=shm | pipelined parts=3 last=25 | 1 | 2\n";
  const std::string text = example().text();
  EXPECT_EQ(text.find("plait plans 2\nmachine a machine\n" + line), 0U) << text;
  EXPECT_EQ(PlanCache::parse(text), example());
  PlanCache other("a machine");
  other.add(some_problem(16), fused(99));
  other.add(some_problem(16),
            {.plan = parse_plan("pipelined parts=3 last=25"), .nanoseconds = 1, .serial = 2});
  other.add(some_problem(8), fused());
  EXPECT_EQ(other.text(), text);
}

TEST(PlanCaches, KnowWhatTheyWereToldAlone) {
  const PlanCache cache = example();
  EXPECT_EQ(cache.find(some_problem(8)), parse_plan("fused"));
  EXPECT_EQ(cache.find(some_problem(9)), std::nullopt);
  PlanKey linked = some_problem(8);
  linked.link = parse_link("1gbit,1us");
  EXPECT_EQ(cache.find(linked), std::nullopt);
  PlanKey plain = some_problem(8);
  plain.weight = "bf16:plain";
  EXPECT_EQ(cache.find(plain), std::nullopt);
}

TEST(PlanCaches, RefuseWhatTheyDidNotWrite) {
  const std::string good = example().text();
  EXPECT_EQ(refusal_of(""), "plans: the first line must be \"plait plans 2\", not \"\"");
  EXPECT_EQ(refusal_of("plait plans 1\n"),
            "plans: the first line must be \"plait plans 2\", not \"plait plans 1\"");
  EXPECT_EQ(refusal_of("plait plans 2\nop=matmul\n"),
            "plans: the second line must name their machine: \"machine ...\"");
  EXPECT_EQ(refusal_of(good.substr(0, good.size() - 1)), "plans: the last line is incomplete");
  EXPECT_EQ(refusal_of(good + good.substr(good.rfind("op="))),
            "plans, line 5: its problem has a line above already");
  EXPECT_EQ(refusal_of(good + "op=matmul_all_gather m=8 n=8 k=8 x=bf16 w=bf16 out=bf16 wire=bf16 "
                              "ranks=2 | fused | 1 | 2\n"),
            "plans, line 5: matmul_all_gather cannot run the plan \"fused\"");
  EXPECT_EQ(refusal_of(good + "op=matmul m=8 n=8 k=8 | serial | 1 | 2\n"),
            "plans, line 5: this problem must be written as \"op=matmul m=8 n=8 k=8 x=bf16 w=bf16 "
            "out=bf16 wire=bf16 ranks=2\"");
  EXPECT_EQ(refusal_of(good + "serial\n"), "plans, line 5: it does not have 4 columns");
}

TEST(PlanCaches, AreReadOrRefusedWhateverIsInThem) {
  std::mt19937 random(3);
  const std::string good = example().text();
  for (int round = 0; round < 2000; ++round) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    for (int change = 0; change < 3 && !text.empty(); ++change)
      text[random() % text.size()] = static_cast<char>(random() % 128);
    refusal_of(text);
  }
}

}  // namespace
}  // namespace plait::plan
