// Predicted ends of models: sums that can be calculated by hand.
#include "predict/heads.h"

#include <gtest/gtest.h>

#include <limits>

namespace plait::predict {
namespace {

constexpr base::Nanoseconds kLatency = 700;
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kIds = 4096;
constexpr std::int64_t kWidth = 256;

// It multiplies two numbers per nanosecond, and sends one byte per nanosecond.
Machine plain_machine(int ranks, base::Nanoseconds launch = 0) {
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
          .ranks = ranks};
}

HeadProblem plain_problem(Head head) { return {.head = head, .m = kRows, .n = kIds, .k = kWidth}; }

// A rank has half of the ids, where there are two.
constexpr base::Nanoseconds kProduct = kRows * (kIds / 2) * kWidth / 2;

// A rank has its own terms to send too, and notices what it waits for some polls later.
void expect_about(base::Nanoseconds got, base::Nanoseconds want) {
  constexpr base::Nanoseconds kTerms = 80;
  EXPECT_GE(got, want);
  EXPECT_LE(got, want + kTerms + 60);
}

TEST(PredictedHeads, TopIsTheProductAndItsCandidates) {
  const Machine machine = plain_machine(2);
  HeadProblem problem = plain_problem(Head::top);
  problem.top = 5;
  constexpr base::Nanoseconds kCandidates = kRows * 5 * 8;
  EXPECT_EQ(products_alone(machine, problem), kProduct);
  expect_about(predict(machine, problem, {.product = false}).time, kCandidates + kLatency);
  expect_about(predict(machine, problem).time, kProduct + kCandidates + kLatency);
}

TEST(PredictedHeads, LossesAloneSendSumsOfRows) {
  const Machine machine = plain_machine(2);
  constexpr base::Nanoseconds kSums = kRows * 64;
  for (const Head head : {Head::loss_alone, Head::log_probs}) {
    EXPECT_EQ(products_alone(machine, plain_problem(head)), kProduct);
    expect_about(predict(machine, plain_problem(head)).time, kProduct + kSums + kLatency);
  }
}

// Ranks agree, send sums, and add dx up in f32: half of its rows go to the other rank, and back, of
// which a part may travel while the rest is added.
TEST(PredictedHeads, ALossWithItsGradientIsThreeProducts) {
  const HeadProblem problem = plain_problem(Head::loss);
  EXPECT_EQ(products_alone(plain_machine(2), problem), 3 * kProduct);
  const base::Nanoseconds time = predict(plain_machine(2), problem).time;
  constexpr base::Nanoseconds kSent = kRows * 64 + kRows * kWidth / 2 * (4 + 2);
  EXPECT_GE(time, 3 * kProduct + kSent + 3 * kLatency);
  EXPECT_LE(time, 3 * kProduct + kSent + 4 * kLatency + 1000);
  // One kernel for the logits, and two for each of the rank's eight parts of the vocabulary.
  constexpr base::Nanoseconds kLaunch = 100'000;
  EXPECT_EQ(predict(plain_machine(2, kLaunch), problem).time - time, 17 * kLaunch);
}

TEST(PredictedHeads, SharesMayBeUnevenOrEmpty) {
  for (const std::int64_t ids : {3, 1001}) {
    for (const Head head : {Head::top, Head::loss, Head::loss_alone}) {
      HeadProblem problem = plain_problem(head);
      problem.n = ids;
      const Machine machine = plain_machine(4);
      const base::Nanoseconds time = predict(machine, problem).time;
      EXPECT_GE(time, products_alone(machine, problem) + kLatency);
      EXPECT_EQ(time, predict(machine, problem).time);
    }
  }
}

}  // namespace
}  // namespace plait::predict
