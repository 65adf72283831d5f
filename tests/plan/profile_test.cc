#include "plan/profile.h"

#include <gtest/gtest.h>

#include <string>

#include "base/processor.h"
#include "plait/error.h"
#include "plan/machine.h"

namespace plait::plan {
namespace {

TEST(Profiles, TakeRatesBetweenThoseThatWereMeasured) {
  MachineProfile profile;
  profile.start = 0;
  profile.narrow = 0.3;
  profile.products = {{.kind = "bf16", .rows = 16, .flops_per_ns = 10},
                      {.kind = "bf16", .rows = 64, .flops_per_ns = 40}};
  const PlanKey key = {.op = Operator::matmul, .m = 1, .n = 1, .k = 1};
  const auto time = [&](std::int64_t rows, std::int64_t columns) {
    return profile.product({.rows = rows, .columns = columns, .k = 100}, key);
  };
  EXPECT_NEAR(time(16, 256), 2.0 * 16 * 256 * 100 / 10, 1e-6);
  EXPECT_NEAR(time(32, 256), 2.0 * 32 * 256 * 100 / 20, 1e-6);
  EXPECT_NEAR(time(640, 256), 2.0 * 640 * 256 * 100 / 40, 1e-6);
  EXPECT_NEAR(time(4, 256), time(16, 256), 1e-6);  // the weight is read in both cases
  EXPECT_DOUBLE_EQ(time(16, 1), time(16, 64));     // a panel is multiplied whole
  EXPECT_NEAR(time(16, 64) * 4, time(16, 256) * 1.3, 1e-6);
  EXPECT_NEAR(time(16, 128) * 2, time(16, 256) * 1.1, 1e-6);
}

TEST(Profiles, TakeWhatKeptSumsCostBetweenThoseThatWereMeasured) {
  MachineProfile profile;
  EXPECT_EQ(profile.times_as_long(1e9), 1);  // nothing is known
  profile.kept = {{.bytes = 1000, .times = 1}, {.bytes = 4000, .times = 4}};
  EXPECT_EQ(profile.times_as_long(0), 1);
  EXPECT_EQ(profile.times_as_long(1000), 1);
  EXPECT_NEAR(profile.times_as_long(2000), 2, 1e-9);
  EXPECT_EQ(profile.times_as_long(4000), 4);
  EXPECT_EQ(profile.times_as_long(1e9), 4);
}

TEST(Profiles, TakeATransportThatWasNotMeasuredAsItUsuallyIs) {
  MachineProfile profile = built_in_profile();
  profile.transports = {{.name = "shm", .latency = 7, .bytes_per_ns = 3}};
  const PlanKey shm = {.op = Operator::matmul, .m = 1, .n = 1, .k = 1, .transport = "shm"};
  PlanKey mpi = shm;
  mpi.transport = "mpi";
  EXPECT_EQ(profile.transport(shm).latency, 7);
  EXPECT_EQ(profile.transport(mpi), built_in_profile().transport(mpi));
  EXPECT_GT(profile.transport(mpi).bytes_per_ns, 0);  // 0: no limit
}

// The cost of MPI's messages within a host says nothing about the network.
TEST(Profiles, TellNothingOfOtherNumbersOfHosts) {
  MachineProfile profile = built_in_profile();
  profile.machine = "this one";
  profile.transports = {{.name = "mpi", .latency = 7, .bytes_per_ns = 30}};
  profile.uncertainty = 0.03;
  PlanKey key = {.op = Operator::matmul_all_reduce, .m = 64, .n = 64, .k = 64, .world = 2};
  key.threads = profile.threads;
  key.transport = "mpi";
  EXPECT_EQ(profile.transport(key).latency, 7);
  EXPECT_EQ(profile.uncertainty_of(key), 0.03);
  key.hosts = 2;
  EXPECT_EQ(profile.transport(key), built_in_profile().transport(key));
  EXPECT_EQ(profile.uncertainty_of(key), kElsewhere);
  profile.hosts = 2;
  EXPECT_EQ(profile.transport(key).latency, 7);
  EXPECT_EQ(parse_profile(text_of(profile)).hosts, 2);
}

TEST(Profiles, KnowAKindOfProductByItsOperands) {
  const PlanKey key = {.op = Operator::matmul, .m = 1, .n = 1, .k = 1};
  PlanKey other = key;
  EXPECT_EQ(product_kind(key), "bf16");
  other.weight = "bf16:plain";
  EXPECT_EQ(product_kind(other), "bf16");
  other.weight = "f32:plain";
  EXPECT_EQ(product_kind(other), "f32");
  other.x = Dtype::f16;
  EXPECT_EQ(product_kind(other), "f32");
  other.weight = "s8:group=128";
  EXPECT_EQ(product_kind(other), "s8");
}

TEST(TheMachine, IsTheSameEachTimeAndOneLine) {
  EXPECT_EQ(machine_fingerprint(), machine_fingerprint());
  EXPECT_EQ(machine_fingerprint().find('\n'), std::string::npos);
  EXPECT_EQ(machine_fingerprint().find("plait "), 0U);
}

TEST(TheMachine, IsNamedWithWhatItsProcessorIsNumberedBy) {
  const std::string model = base::read_processor().model;
  EXPECT_NE(machine_fingerprint().find(", " + model + ", "), std::string::npos) << model;
}

}  // namespace
}  // namespace plait::plan
