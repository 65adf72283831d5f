// Predicted times of plans: closed forms where they exist, and properties that always hold.
#include "plan/schedule_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/model_problems.h"

namespace plait::plan {
namespace {

TEST(Predictions, OfSerialAreTheProductAndThenTheLink) {
  const CostModel model(idle_profile());
  const PlanKey key = problem("matmul_reduce_scatter", "8gbit,7us");
  const Prediction serial = model.predict(key, parse_plan("serial"));
  const double product = 2.0 * 1024 * 4096 * 2048 / 100;
  const double transfer = 512.0 * 4096 * 4;  // at one byte per nanosecond
  EXPECT_NEAR(serial.product, product, 1);
  EXPECT_NEAR(serial.transfer, transfer, 1);
  EXPECT_NEAR(serial.total, product + transfer + 7000, 1 + serial.work);
}

// With p parts: the longer one, plus a p-th of the other.
TEST(Predictions, OfPipelinedAreTheLongerOneAndAPartOfTheOther) {
  for (const double ratio : {0.5, 2.0}) {
    for (const char* op : {"matmul_reduce_scatter", "matmul_all_gather"}) {
      const PlanKey key = balanced(op, ratio);
      const Plan plan = parse_plan("pipelined parts=8 first=100 last=100 poll=0");
      const Prediction one = CostModel(idle_profile()).predict(key, plan);
      const double longer = std::max(one.product, one.transfer);
      const double other = std::min(one.product, one.transfer);
      EXPECT_NEAR(one.total, longer + other / 8, 0.01 * one.total) << op << ' ' << ratio;
    }
  }
}

TEST(Predictions, AddUp) {
  const CostModel model(busy_profile());
  for (const char* op : kOps) {
    for (const char* link : {"", "10gbit,5us"}) {
      const PlanKey key = problem(op, link);
      for (const Plan& plan : candidates(key)) {
        const Prediction one = model.predict(key, plan);
        EXPECT_NEAR(one.total, one.product + one.work + one.waited, 1e-6 * one.total)
            << name(key) << ' ' << name(plan);
        EXPECT_GE(one.total, one.transfer) << name(key) << ' ' << name(plan);
      }
    }
  }
}

TEST(Predictions, GetLongerOverSlowerLinks) {
  const CostModel model(busy_profile());
  for (const char* op : kOps) {
    for (const Plan& plan : candidates(problem(op))) {
      double before = model.predict(problem(op), plan).total;
      for (const char* link : {"100gbit,1us", "10gbit,5us", "1gbit,50us", "1gbit,5ms"}) {
        const double total = model.predict(problem(op, link), plan).total;
        EXPECT_GE(total, before * 0.999) << op << ' ' << name(plan) << ' ' << link;
        before = total;
      }
    }
  }
}

// The largest problem that a key may name must not overflow, and a chunk for each of its columns
// must fit into memory.
TEST(Predictions, TakeAMomentOfTheLargestProblem) {
  const CostModel model(busy_profile());
  const PlanKey key =
      problem("matmul_all_reduce", "1gbit,5us", "m=268435456 n=268435456 k=64 ranks=33");
  const double product = model.predict(key, parse_plan("serial")).product;
  EXPECT_GT(model.predict(key, parse_plan("fused chunk=1")).total, product);
}

}  // namespace
}  // namespace plait::plan
