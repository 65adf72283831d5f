// The plans that the model chooses.
#include "plan/cost_model.h"

#include <gtest/gtest.h>

#include <string>

#include "plan/model_problems.h"

namespace plait::plan {
namespace {

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

constexpr const char* kBetweenHosts =
    "op=matmul_all_reduce m=512 n=1024 k=1024 hosts=2 transport=tcp";

// Nothing is known of the network: it is more likely slow than fast.
TEST(Choices, AreTheDefaultBetweenHostsWhoseLinkIsUnknown) {
  const PlanKey key = parse_plan_key(kBetweenHosts);
  const CostModel model(built_in_profile());
  EXPECT_EQ(model.choose(key), default_plan(key.op));
  EXPECT_EQ(model.reason(key)->sentence, "the link between the hosts has not been measured");
  MachineProfile measured = built_in_profile();
  measured.network = {.latency = 10'000, .bytes_per_ns = 100, .processor = 0.4};
  EXPECT_EQ(CostModel(measured).choose(key), parse_plan("serial"));
}

// The kernel's work for a network can't be hidden behind a product: a fast one is worth no plan.
TEST(Choices, KnowWhatANetworkTakesOfTheProcessor) {
  MachineProfile profile = built_in_profile();
  const PlanKey key = parse_plan_key(kBetweenHosts);
  const auto gain = [&](double bytes_per_ns, double processor) {
    profile.network = {.latency = 20'000, .bytes_per_ns = bytes_per_ns, .processor = processor};
    const CostModel model(profile);
    const double serial = model.predict(key, parse_plan("serial")).total;
    return 1 - model.predict(key, parse_plan("fused")).total / serial;
  };
  EXPECT_GT(gain(0.125, 0.4), 0.2);
  EXPECT_GT(gain(0.125, 0.4), gain(0.125, 2));
  EXPECT_GT(gain(1.25, 0), gain(1.25, 1));
}

TEST(Choices, SayWhyInNumbers) {
  const CostModel model(built_in_profile());
  const auto said = [&](const PlanKey& key) { return model.reason(key)->sentence; };
  EXPECT_TRUE(said(problem("matmul_all_reduce", "1gbit", "m=512 n=4096 k=4096"))
                  .starts_with("predicted to gain "));
  EXPECT_TRUE(said(problem("matmul_all_reduce", "", "m=1 n=64 k=65536"))
                  .starts_with("no gain is expected: \""));
  EXPECT_EQ(said(problem("matmul_all_reduce", "1gbit", "m=64 n=64 k=64 ranks=1")),
            "one rank has nothing to hide");
}

}  // namespace
}  // namespace plait::plan
