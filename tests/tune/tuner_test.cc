// Measured plans: which are tried, and the result.
#include "tune/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "conformance/ranks.h"

namespace plait::tune {
namespace {

TEST(Shortlists, BeginWithSerialAndHaveTheUsualPlans) {
  const plan::CostModel model(plan::built_in_profile());
  const PlanKey key = parse_plan_key("op=matmul_all_reduce m=512 n=4096 k=4096 link=10gbit,5us");
  const auto plans = shortlist(model, key, 10);
  EXPECT_EQ(plans.size(), 11U);
  EXPECT_EQ(plans.front(), parse_plan("serial"));
  for (const char* usual : {"fused", "pipelined parts=4", "pipelined parts=8"})
    EXPECT_NE(std::find(plans.begin(), plans.end(), parse_plan(usual)), plans.end()) << usual;
  EXPECT_NE(std::find(plans.begin(), plans.end(), model.rank(key).front().plan), plans.end());
  EXPECT_EQ(shortlist(model, parse_plan_key("op=matmul m=5 n=6 k=7"), 10).size(), 1U);
  EXPECT_EQ(shortlist(model, parse_plan_key("op=all_reduce_matmul m=5 n=6 k=7 ranks=1"), 10).size(),
            1U);
}

TEST(Tuning, ComesToTheSameOnAllRanks) {
  const plan::CostModel model(plan::built_in_profile());
  for (const char* text : {"op=matmul_all_reduce m=32 n=200 k=96 ranks=3 threads=1",
                           "op=all_gather_matmul m=33 n=200 k=96 ranks=3 threads=1 w=s8:channel "
                           "link=10gbit,20us",
                           "op=matmul_reduce_scatter m=32 n=64 k=96 ranks=3 threads=1 w=f32:plain",
                           "op=all_reduce_matmul m=32 n=64 k=96 ranks=3 threads=1 x=f32"}) {
    const PlanKey key = parse_plan_key(text);
    std::mutex mutex;
    std::vector<Tuned> all;
    run_as_threads(3, [&](Communicator& comm) {
      const Tuned tuned = tune_problem(key, model, {.each = 1, .plans = 4}, comm);
      const std::lock_guard lock(mutex);
      all.push_back(tuned);
    });
    ASSERT_EQ(all.size(), 3U);
    for (const Tuned& one : all) {
      EXPECT_EQ(one.plan, all[0].plan);
      EXPECT_EQ(one.nanoseconds, all[0].nanoseconds);
      EXPECT_EQ(one.key, key);
      EXPECT_GT(one.serial, 0);
      EXPECT_TRUE(has_schedule(key.op, one.plan.schedule));
    }
  }
}

// Which of them is the fastest at this moment is random.
TEST(Tuning, ChoosesOneOfItsShortlist) {
  const plan::CostModel model(plan::built_in_profile());
  const PlanKey key =
      parse_plan_key("op=matmul_reduce_scatter m=64 n=256 k=256 threads=1 link=0.4gbit,1us");
  run_as_threads(2, [&](Communicator& comm) {
    const Tuned tuned = tune_problem(key, model, {.each = 1, .plans = 3}, comm);
    EXPECT_EQ(tuned.tried, 4);
    const auto plans = shortlist(model, key, 3);
    EXPECT_NE(std::find(plans.begin(), plans.end(), tuned.plan), plans.end());
    EXPECT_GT(tuned.nanoseconds, 0);
  });
}

}  // namespace
}  // namespace plait::tune
