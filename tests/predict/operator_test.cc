// Predictions of cases that can be calculated by hand, and properties of all of them.
#include "predict/operator.h"
#include "ops/operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "plait/error.h"

namespace plait::predict {
namespace {

constexpr double kForFree = std::numeric_limits<double>::infinity();
constexpr base::Nanoseconds kLatency = 700;
const Plan kSerial = {.schedule = Schedule::serial};
const Plan kFused = {.schedule = Schedule::fused};

// Multiplies two numbers per nanosecond; everything else costs nothing.
Device plain_device() {
  return {.name = "plain",
          .peak_flops = 4e9,
          .attained = 1,
          .peak_memory = kForFree,
          .memory_share = 1,
          .units = 1,
          .tiles = {{1, 1, 1.0}}};
}

// Sends one byte per nanosecond.
Machine plain_machine(int ranks) {
  return {.device = plain_device(),
          .network = {.link = {.bytes_per_second = 1e9, .latency_ns = kLatency},
                      .wiring = Wiring::pairs},
          .ranks = ranks};
}

// A rank notices what it waits for when it polls its peers, at most some polls later.
void expect_time(base::Nanoseconds got, base::Nanoseconds want, int ranks) {
  constexpr base::Nanoseconds kLooks = 40;
  EXPECT_GE(got, want);
  EXPECT_LE(got, want + kLooks * (ranks - 1));
}

// 64 rows of which each of two ranks owns 32, of 512 partial sums of 4 bytes.
constexpr base::Nanoseconds kSent = 32 * 512 * 4;
Problem plain_problem(std::int64_t k) {
  return {.op = Operator::matmul_reduce_scatter, .m = 64, .n = 512, .k = k};
}

TEST(PredictedOperator, SerialIsProductAndCollective) {
  const Machine machine = plain_machine(2);
  const Problem problem = plain_problem(64);
  const base::Nanoseconds product = 64 * 512 * 32 / 2;
  EXPECT_EQ(product_alone(machine, problem), product);
  expect_time(predict(machine, problem, kSerial, {.product = false}).time, kSent + kLatency, 2);
  expect_time(predict(machine, problem, kSerial).time, product + kSent + kLatency, 2);
}

TEST(PredictedOperator, ExchangesAreProductAndAllToAll) {
  const Machine machine = plain_machine(2);
  for (const bool product_first : {true, false}) {
    // Each rank multiplies its 32 rows, and sends 32 rows of half of the columns.
    Problem problem = {.m = 64, .n = 512, .k = 64};
    const std::int64_t columns = product_first ? problem.n : problem.k;
    problem.exchange = {.product_first = product_first, .columns = equal_columns(columns, 2)};
    const base::Nanoseconds product = 32 * 512 * 64 / 2;
    const base::Nanoseconds sent = 32 * columns / 2 * 2;
    EXPECT_EQ(product_alone(machine, problem), product);
    expect_time(predict(machine, problem, kSerial, {.product = false}).time, sent + kLatency, 2);
    expect_time(predict(machine, problem, kSerial).time, product + sent + kLatency, 2);
    EXPECT_LE(predict(machine, problem, kFused).time, product + sent + kLatency + 40);
  }
}

TEST(PredictedOperator, GatheredColumnsAreProductAndGather) {
  const Machine machine = plain_machine(2);
  for (const bool product_first : {true, false}) {
    // Each rank multiplies all rows by half of the outputs, and sends half of the columns.
    Problem problem = {.m = 64, .n = 512, .k = 64};
    const std::int64_t columns = product_first ? problem.n : problem.k;
    problem.exchange = {.family = Family::columns,
                        .product_first = product_first,
                        .columns = equal_columns(columns, 2)};
    const base::Nanoseconds product = 64 * 512 / 2 * 64 / 2;
    const base::Nanoseconds sent = 64 * columns / 2 * 2;
    EXPECT_EQ(product_alone(machine, problem), product);
    expect_time(predict(machine, problem, kSerial, {.product = false}).time, sent + kLatency, 2);
    expect_time(predict(machine, problem, kSerial).time, product + sent + kLatency, 2);
    EXPECT_LE(predict(machine, problem, kFused).time, product + sent + kLatency + 40);
  }
}

TEST(PredictedOperator, AllReduceSendsSumsBack) {
  const Machine machine = plain_machine(2);
  Problem problem = {.op = Operator::matmul_all_reduce, .m = 256, .n = 512, .k = 64};
  const base::Nanoseconds parts = 128 * 512 * 4;  // one chunk
  const base::Nanoseconds sums = 128 * 512 * 2;
  expect_time(predict(machine, problem, kSerial, {.product = false}).time,
              parts + sums + 2 * kLatency, 2);
}

TEST(PredictedOperator, PartsHideWhatIsShorter) {
  const Machine machine = plain_machine(2);
  const Plan halves = {.schedule = Schedule::pipelined, .parts = 2, .first = 100, .last = 100};
  for (const std::int64_t k : {32, 1024}) {
    const Problem problem = plain_problem(k);
    const base::Nanoseconds product = 64 * 512 * k / 2 / 2;
    const base::Nanoseconds longer = std::max(product / 2, kSent / 2);
    expect_time(predict(machine, problem, halves).time, product / 2 + longer + kSent / 2 + kLatency,
                2);
  }
}

TEST(PredictedOperator, RanksGatherFromAllOthersThroughTheirPorts) {
  Machine machine = plain_machine(4);
  const Problem problem = {.op = Operator::all_gather_matmul, .m = 64, .n = 64, .k = 64};
  const base::Nanoseconds shard = 16 * 64 * 2;
  expect_time(predict(machine, problem, kSerial, {.product = false}).time, shard + kLatency, 4);
  machine.network.wiring = Wiring::ports;
  expect_time(predict(machine, problem, kSerial, {.product = false}).time, 3 * shard + kLatency, 4);
}

TEST(PredictedOperator, CopiesAndSumsAndLaunchesCount) {
  Machine machine = plain_machine(2);
  machine.device.memory_launch = 1000;
  machine.device.peak_memory = 4e9;
  machine.device.launch = 5000;
  const Problem problem = plain_problem(64);
  // The product reads and writes less than it multiplies. There are a copy of what is sent, and a
  // sum of two.
  const base::Nanoseconds product = 5000 + 64 * 512 * 32 / 2;
  const base::Nanoseconds copy = 1000 + 2 * kSent / 4;
  const base::Nanoseconds sum = 1000 + (2 * kSent + kSent / 2) / 4;
  expect_time(predict(machine, problem, kSerial).time, product + copy + kSent + kLatency + sum, 2);
}

// Each rank sends its shard of X and receives the other. Its processor's work for that is hidden
// where the rank waits, and delays a product that hides the transfer.
TEST(PredictedOperator, WorkForTheNetworkDelaysProductsBesideIt) {
  constexpr double kWork = 0.125;  // nanoseconds for each byte
  Machine machine = plain_machine(2);
  machine.network.wiring = Wiring::ports;
  const Problem problem = {.op = Operator::all_gather_matmul, .m = 64, .n = 1024, .k = 512};
  const base::Nanoseconds shard = 32 * 512 * 2;
  const base::Nanoseconds product = 64 * 512 * 512 / 2;
  const base::Nanoseconds fused = predict(machine, problem, kFused).time;
  EXPECT_EQ(predict(machine, problem, kFused).network_work, 0);
  machine.network.processor_ns_per_byte = kWork;
  const auto work = static_cast<base::Nanoseconds>(2 * kWork * shard);
  EXPECT_EQ(predict(machine, problem, kFused).network_work, work);
  EXPECT_EQ(predict(machine, problem, kFused).time, fused + work);
  expect_time(predict(machine, problem, kSerial).time, product + shard + kLatency, 2);
}

class AllOperators : public testing::TestWithParam<Operator> {};

// No time may be shorter than the product or than the network allows, at any number of ranks, and a
// repetition must be equal to the last bit.
TEST_P(AllOperators, TakesItsTimeInEverySchedule) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const char* device : {"h100", "ascend-910b", "cpu"}) {
      const Machine machine = {
          .device = find_device(device), .network = find_network("25gbit,5us"), .ranks = ranks};
      const Problem problem = {.op = GetParam(), .m = 203, .n = 576, .k = 448};
      for (const char* text : {"serial", "pipelined parts=3", "fused"}) {
        const Plan plan = parse_plan(text);
        if (!has_schedule(GetParam(), plan.schedule)) continue;
        const base::Nanoseconds time = predict(machine, problem, plan).time;
        EXPECT_EQ(predict(machine, problem, plan).time, time) << text << ' ' << device;
        EXPECT_GT(time, ranks > 1 ? 5000 : 0) << text << ' ' << device;
        EXPECT_LT(time, base::kSecond) << text << ' ' << device;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Predicted, AllOperators, testing::ValuesIn(communicating_operators()),
                         operator_name);

TEST(PredictedOperator, RecordsWhatRanksDo) {
  const Machine machine = plain_machine(3);
  const Problem problem = plain_problem(64);
  const Outcome outcome = predict(machine, problem, kFused, {.records = true});
  ASSERT_EQ(outcome.records.size(), 3U);
  for (const trace::RankRecords& rank : outcome.records) {
    std::int64_t flops = 0;
    int flights = 0;
    for (const trace::Record& record : rank.records) {
      EXPECT_LE(record.begin, record.end);
      EXPECT_LE(record.end, outcome.time);
      if (rank.labels[record.label] == "product") flops += record.args.flops;
      flights += record.kind == trace::Kind::flight ? 1 : 0;
    }
    EXPECT_EQ(flops, 2 * 64 * 512 * (rank.rank == 0 ? 22 : 21));
    EXPECT_GE(flights, 2);
  }
}

}  // namespace
}  // namespace plait::predict
