// Predicted layers of experts: sums that can be calculated by hand, and properties of all of them.
#include "predict/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace plait::predict {
namespace {

constexpr base::Nanoseconds kLatency = 700;
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kHidden = 256;
constexpr std::int64_t kInner = 128;

// It multiplies two numbers per nanosecond, and sends one byte per nanosecond.
Machine plain_machine(base::Nanoseconds launch = 0) {
  return {.device = {.name = "plain",
                     .peak_flops = 4e9,
                     .attained = 1,
                     .peak_memory = std::numeric_limits<double>::infinity(),
                     .memory_share = 1,
                     .units = 1,
                     .tiles = {{1, 1, 1.0}},
                     .launch = launch},
          .network = {.link = {.bytes_per_second = 1e9, .latency_ns = kLatency},
                      .wiring = Wiring::pairs},
          .ranks = 2};
}

// Two ranks with four experts each. Of each rank's rows so many go to each expert in turn, and the
// rest to none.
ExpertsProblem plain_problem(std::int64_t rows = kRows) {
  ExpertsProblem problem = {.desc = {.hidden = kHidden,
                                     .inner = kInner,
                                     .experts = 8,
                                     .top = 1,
                                     .dtype = Dtype::bf16,
                                     .out = Dtype::bf16,
                                     .wire = Dtype::bf16,
                                     .weight = {.dtype = Dtype::bf16}},
                            .rows = kRows,
                            .ids = {}};
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(kRows));
  for (std::int64_t row = 0; row < kRows; ++row) ids.push_back(row < rows ? row % 8 : -1);
  problem.ids.assign(2, ids);
  return problem;
}

// Both products of a rank's rows, and the bytes of half of them.
constexpr base::Nanoseconds kProducts = kRows * 3 * kHidden * kInner / 2;
constexpr base::Nanoseconds kSent = kRows / 2 * kHidden * 2;

// Counts travel too, and the places of rows. A rank notices what it waits for some polls later.
void expect_about(base::Nanoseconds got, base::Nanoseconds want, std::int64_t rows = kRows) {
  constexpr std::int64_t kPlace = 4;
  EXPECT_GE(got, want);
  EXPECT_LE(got, want + 400 + rows * kPlace);
}

TEST(PredictedExperts, SerialIsOneAfterAnother) {
  const Machine machine = plain_machine();
  const ExpertsProblem problem = plain_problem();
  const base::Nanoseconds exchange = 2 * (kSent + kLatency);
  EXPECT_EQ(products_alone(machine, problem), kProducts);
  expect_about(predict(machine, problem, Schedule::serial, {.product = false}).time, exchange);
  expect_about(predict(machine, problem, Schedule::serial).time, exchange + kProducts);
}

TEST(PredictedExperts, FusedHidesRowsBehindProducts) {
  const Machine machine = plain_machine();
  ExpertsProblem problem = plain_problem();
  problem.rows = 16 * kRows;
  for (auto& ids : problem.ids) {
    const std::vector<std::int64_t> some = ids;
    for (int i = 1; i < 16; ++i) ids.insert(ids.end(), some.begin(), some.end());
  }
  const base::Nanoseconds serial = predict(machine, problem, Schedule::serial).time;
  const base::Nanoseconds fused = predict(machine, problem, Schedule::fused).time;
  expect_about(serial, 16 * (kProducts + 2 * kSent) + 2 * kLatency, problem.rows);
  EXPECT_GE(fused, 16 * kProducts);
  EXPECT_LE(fused, serial - 16 * kSent);
}

TEST(PredictedExperts, AGroupedProductIsLaunchedOnce) {
  constexpr base::Nanoseconds kLaunch = 100'000;
  const ExpertsProblem problem = plain_problem();
  const auto serial = [&](base::Nanoseconds launch) {
    return predict(plain_machine(launch), problem, Schedule::serial).time;
  };
  EXPECT_EQ(serial(kLaunch) - serial(0), 2 * kLaunch);
  EXPECT_EQ(products_alone(plain_machine(kLaunch), problem), kProducts + 2 * kLaunch);
}

TEST(PredictedExperts, OfFewRowsEachTouchedWeightIsRead) {
  Machine machine = plain_machine();
  machine.device.peak_flops = 1e15;
  machine.device.peak_memory = 1e9;
  const auto bytes_of = [](std::int64_t rows) {  // of each rank
    constexpr std::int64_t kWeights = 3 * kHidden * kInner * 2;
    constexpr std::int64_t kOfRow = (kHidden + kInner) * 2 + 2 * kInner * 4 + kHidden * 2;
    return std::min<std::int64_t>(rows, 4) * kWeights + rows * kOfRow;
  };
  // Both ranks have one row for each expert, and one for the first alone.
  EXPECT_EQ(products_alone(machine, plain_problem(8)), bytes_of(8));
  EXPECT_EQ(products_alone(machine, plain_problem(1)), bytes_of(2) - 3 * kHidden * kInner * 2);
}

TEST(PredictedExperts, ReplicatedRowsDoNotTravel) {
  const Machine machine = plain_machine();
  ExpertsProblem problem = plain_problem();
  problem.ids.resize(1);
  problem.replicated = true;
  // Half of the rows are multiplied; a quarter of the results go to their owner, then half of the
  // sums to the other rank.
  EXPECT_EQ(products_alone(machine, problem), kProducts / 2);
  expect_about(predict(machine, problem, Schedule::serial).time,
               kProducts / 2 + kSent / 2 + kSent + 2 * kLatency);
}

}  // namespace
}  // namespace plait::predict
