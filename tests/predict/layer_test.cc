// Predicted layers: sums that can be calculated by hand, and properties of all of them.
#include "predict/layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "predict/model.h"

namespace plait::predict {
namespace {

const Plan kSerial = {.schedule = Schedule::serial};

// It multiplies two numbers per nanosecond, and sends one byte per nanosecond.
Machine plain_machine(int ranks) {
  return {.device = {.name = "plain",
                     .peak_flops = 4e9,
                     .attained = 1,
                     .peak_memory = std::numeric_limits<double>::infinity(),
                     .memory_share = 1,
                     .units = 1,
                     .tiles = {{1, 1, 1.0}}},
          .network = {.link = {.bytes_per_second = 1e9, .latency_ns = 1000}},
          .ranks = ranks};
}

// Expects equality to a thousandth: chunks are rounded, and polling takes some time.
void expect_about(base::Nanoseconds got, double want) {
  EXPECT_GE(static_cast<double>(got), 0.999 * want);
  EXPECT_LE(static_cast<double>(got), 1.001 * want + 2000);
}

// Two ranks, 2048 rows, 1024 inputs and outputs: a product and a shard of rows.
constexpr double kProduct = 2048.0 * 1024 * 512 / 2;
constexpr double kShard = 1024.0 * 1024 * 2;

LayerProblem plain_layer(plan::LinearKind kind) {
  return {.kind = kind, .rows = 2048, .inputs = 1024, .outputs = 1024};
}

TEST(PredictedLayer, RowMultipliesAndSumsThenGathersAndMultiplies) {
  const LayerTimes times = predict(plain_machine(2), plain_layer(plan::LinearKind::row), kSerial);
  expect_about(times.forward, kProduct + kShard);
  expect_about(times.backward, kShard + kProduct + kProduct);
}

// In backward, the gathers and sums of column layers each run during a product.
TEST(PredictedLayer, ColumnHidesItsCollectivesInBackward) {
  const LayerTimes times =
      predict(plain_machine(2), plain_layer(plan::LinearKind::column), kSerial);
  expect_about(times.forward, kShard + kProduct);
  EXPECT_GE(times.backward, static_cast<base::Nanoseconds>(2 * kProduct));
  EXPECT_LT(times.backward, static_cast<base::Nanoseconds>(2 * kProduct + kShard / 10));
}

TEST(PredictedLayer, WithoutSequenceParallelColumnForwardIsAProduct) {
  LayerProblem problem = plain_layer(plan::LinearKind::column);
  problem.sequence_parallel = false;
  expect_about(predict(plain_machine(2), problem, kSerial).forward, kProduct);
}

// Small messages, with which ranks agree, are really sent; layers of any size are made and run.
TEST(PredictedLayer, EveryKindAtAnyWorld) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const plan::LinearKind kind : {plan::LinearKind::column, plan::LinearKind::row}) {
      for (const bool sharded : {false, true}) {
        for (const bool column_backward : {false, true}) {
          const LayerProblem problem = {.kind = kind,
                                        .rows = 301,
                                        .inputs = 640,
                                        .outputs = 448,
                                        .sequence_parallel = sharded,
                                        .recompute_all_gather = column_backward,
                                        .column_backward = column_backward};
          for (const char* plan : {"serial", "pipelined parts=3", "fused"}) {
            const LayerTimes times = predict(plain_machine(ranks), problem, parse_plan(plan));
            const LayerTimes again = predict(plain_machine(ranks), problem, parse_plan(plan));
            EXPECT_EQ(times.forward, again.forward);
            EXPECT_EQ(times.backward, again.backward);
            EXPECT_GT(times.backward, times.forward / 2);
          }
        }
      }
    }
  }
}

TEST(PredictedModel, HasFourLayersAndARest) {
  const Machine machine = {
      .device = find_device("h100"), .network = find_network("nvlink4"), .ranks = 8};
  const Step step = {.model = plan::find_model("llama2-7b"), .tokens = 1024, .sequence = 1024};
  const auto block = predict_block(machine, step, kSerial);
  ASSERT_EQ(block.size(), 4U);
  EXPECT_EQ(block[0].layer.name, "qkv");
  EXPECT_GT(block[2].times.both(), block[1].times.both());
  const Rest rest = rest_of(machine, step);
  EXPECT_EQ(rest.all(), rest.attention + rest.passes + rest.head);
  Step longer = step;
  longer.sequence *= 2;
  EXPECT_NEAR(static_cast<double>(rest_of(machine, longer).attention),
              2 * static_cast<double>(rest.attention), 2);
}

}  // namespace
}  // namespace plait::predict
