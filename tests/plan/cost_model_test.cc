// Predicted times of plans: closed forms where they exist, and properties that always hold.
#include "plan/cost_model.h"

#include <gtest/gtest.h>

#include <string>

namespace plait {
namespace {

// 100 flops per nanosecond for any number of rows; work costs nothing.
MachineProfile idle_profile() {
  MachineProfile profile;
  profile.machine = "somewhere";
  profile.products = {{.kind = "bf16", .rows = 1, .flops_per_ns = 100},
                      {.kind = "f32", .rows = 1, .flops_per_ns = 50}};
  profile.transports = {{.name = "shm", .latency = 0, .bytes_per_ns = 0}};
  profile.copy = profile.sum = 1e9;
  profile.chunk = profile.start = profile.narrow = 0;
  profile.beside = 1;
  profile.uncertainty = 0.02;
  return profile;
}

// An idle_profile() in which copies and sums take their real time.
MachineProfile busy_profile() {
  MachineProfile profile = idle_profile();
  profile.copy = 5;
  profile.sum = 10;
  profile.chunk = 500;
  profile.start = 2000;
  profile.narrow = 0.1;
  profile.beside = 1.2;
  return profile;
}

PlanKey problem(const std::string& op, const std::string& link = "",
                const std::string& sizes = "m=1024 n=4096 k=4096") {
  std::string text = "op=" + op + " " + sizes + " transport=shm";
  if (!link.empty()) text += " link=" + link;
  return parse_plan_key(text);
}

// A problem over a link on which the collective takes `ratio` times the product.
PlanKey balanced(const std::string& op, double ratio) {
  PlanKey key = problem(op, "1gbit");
  const CostModel model(idle_profile());
  const Prediction serial = model.predict(key, parse_plan("serial"));
  key.link->bytes_per_second *= serial.transfer / serial.product / ratio;
  return key;
}

constexpr const char* kOps[] = {"matmul_all_reduce", "matmul_reduce_scatter", "matmul_all_gather",
                                "all_gather_matmul", "reduce_scatter_matmul", "all_reduce_matmul"};

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

TEST(Choices, AreSerialWhereThereIsNothingToGain) {
  const CostModel model(busy_profile());
  const Plan serial = parse_plan("serial");
  EXPECT_EQ(model.choose(problem("matmul_all_reduce", "1gbit", "m=64 n=64 k=64 ranks=1")), serial);
  EXPECT_EQ(model.choose(problem("matmul_all_gather")), serial);
  EXPECT_EQ(model.choose(problem("matmul_all_reduce", "", "m=1 n=64 k=65536")), serial);
  EXPECT_EQ(model.choose(problem("all_gather_matmul", "1tbit,1us", "m=0 n=0 k=0")), serial);
}

// A fifth of the time may be wrong, but that error is common to all plans: the product's. The
// remaining tenth that fusing gains is beyond doubt.
TEST(Choices, TrustWhatTwoPlansDifferBy) {
  MachineProfile profile = idle_profile();
  profile.uncertainty = 0.2;
  const CostModel model(profile);
  const PlanKey key = balanced("matmul_reduce_scatter", 0.1);
  const Prediction serial = model.predict(key, parse_plan("serial"));
  const Prediction chosen = model.predict(key, model.choose(key));
  EXPECT_LT(serial.total - chosen.total, profile.uncertainty * serial.total);
  EXPECT_GT(serial.total - chosen.total, model.doubt(key, chosen, serial));
  EXPECT_NEAR(model.doubt(key, chosen, serial),
              0.2 * (serial.work + serial.waited + chosen.work + chosen.waited + chosen.product -
                     serial.product),
              1e-9 * serial.total);
}

// 16 MB of sums go to memory and back, while those of a chunk of 512 KiB stay in a cache. No other
// effect makes a plan better than serial here.
TEST(Choices, KeepSumsInTheCaches) {
  MachineProfile profile = idle_profile();
  profile.copy = profile.sum = 50;
  profile.beside = 1.3;
  const PlanKey key = problem("matmul_reduce_scatter", "", "m=512 n=8192 k=1024");
  EXPECT_EQ(CostModel(profile).choose(key), parse_plan("serial"));
  profile.kept = {{.bytes = 1 << 20, .times = 1}, {.bytes = 1 << 24, .times = 8}};
  const CostModel model(profile);
  EXPECT_EQ(model.choose(key).schedule, Schedule::fused);
  const auto work = [&](const char* plan) { return model.predict(key, parse_plan(plan)).work; };
  EXPECT_GT(work("serial"), 3 * work("fused"));
  EXPECT_NEAR(work("pipelined parts=2"), work("serial") * profile.beside, 1);  // it holds both
  EXPECT_LT(work("pipelined parts=16"), work("pipelined parts=2") / 3);
  const PlanKey small = problem("matmul_reduce_scatter", "", "m=64 n=4096 k=8192");
  EXPECT_EQ(model.choose(small), parse_plan("serial"));
}

// A gain smaller than the difference between runs of one plan does not count.
TEST(Choices, AreSerialWhereTheGainIsSmall) {
  MachineProfile profile = idle_profile();
  profile.uncertainty = 0;
  const CostModel model(profile);
  EXPECT_EQ(model.choose(balanced("matmul_reduce_scatter", 0.009)), parse_plan("serial"));
  EXPECT_NE(model.choose(balanced("matmul_reduce_scatter", 0.02)), parse_plan("serial"));
}

TEST(Choices, HideMostOfWhatCanBeHidden) {
  const CostModel model(busy_profile());
  for (const char* op : kOps) {
    for (const double ratio : {0.5, 1.0, 2.0}) {
      const PlanKey key = balanced(op, ratio);
      const Prediction serial = model.predict(key, parse_plan("serial"));
      const Prediction chosen = model.predict(key, model.choose(key));
      const double ideal = std::max(serial.product + serial.work, serial.transfer);
      EXPECT_LT(chosen.total, serial.total - 0.6 * (serial.total - ideal))
          << name(key) << ' ' << name(model.choose(key));
    }
  }
}

TEST(Choices, AreNeverPredictedToBeSlowerThanSerial) {
  for (const MachineProfile& profile : {built_in_profile(), idle_profile(), busy_profile()}) {
    const CostModel model(profile);
    for (const char* op : kOps) {
      for (const char* sizes : {"m=1 n=1 k=1", "m=7 n=8192 k=64 ranks=3",
                                "m=512 n=1024 k=8192 ranks=8", "m=4096 n=64 k=64"}) {
        for (const char* link : {"", "100gbit,2us", "1gbit,1ms"}) {
          const PlanKey key = problem(op, link, sizes);
          EXPECT_LE(model.predict(key, model.choose(key)).total,
                    model.predict(key, parse_plan("serial")).total)
              << name(key);
          EXPECT_TRUE(has_schedule(key.op, model.choose(key).schedule));
        }
      }
    }
  }
}

// Nothing hides the first product where it comes first, nor the last transfer.
TEST(Choices, HaveAShortEndWhereItShows) {
  const CostModel model(idle_profile());
  const PlanKey compute_bound = balanced("matmul_all_gather", 0.3);
  const PlanKey comm_bound = balanced("matmul_all_gather", 3);
  const auto total = [&](const PlanKey& key, const char* plan) {
    return model.predict(key, parse_plan(plan)).total;
  };
  const char* short_first = "pipelined parts=4 first=25 last=100";
  const char* short_last = "pipelined parts=4 first=100 last=25";
  EXPECT_LT(total(compute_bound, short_last), total(compute_bound, short_first));
  EXPECT_LT(total(comm_bound, short_first), total(comm_bound, short_last));
}

// A fused plan that copies the sums has no advantage over serial.
TEST(Choices, SaveNoCopyOfARowOfSums) {
  const CostModel model(busy_profile());
  for (const char* op : {"matmul-all-reduce", "matmul-reduce-scatter"}) {
    PlanKey key = problem(op);
    const auto saves = [&] {
      return model.predict(key, parse_plan("fused")).work <
             model.predict(key, parse_plan("serial")).work;
    };
    EXPECT_TRUE(saves()) << op;
    key.m = 1;
    EXPECT_FALSE(saves()) << op;
  }
}

TEST(Choices, AreTheSameEachTime) {
  for (const char* op : kOps) {
    const PlanKey key = problem(op, "5gbit,10us");
    EXPECT_EQ(CostModel(busy_profile()).find(key), CostModel(busy_profile()).find(key));
  }
}

TEST(Candidates, AreDifferentAndCanBeFollowed) {
  for (const char* op : kOps) {
    const PlanKey key = problem(op);
    const auto plans = candidates(key);
    EXPECT_EQ(plans.front(), parse_plan("serial"));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      EXPECT_TRUE(has_schedule(key.op, plans[i].schedule));
      check(plans[i], op);
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(plans[i], plans[j]);
    }
  }
}

}  // namespace
}  // namespace plait
