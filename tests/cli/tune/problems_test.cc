// The operators of a model's layers.
#include "cli/tune/problems.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/tune/tune_options.h"

namespace plait::cli {
namespace {

const PlanKey kUsual = parse_plan_key("op=matmul m=2048 n=0 k=0 wire=f16 ranks=8");

bool has(const std::vector<PlanKey>& problems, const std::string& what, const char* wire) {
  const PlanKey wanted = parse_plan_key("m=2048 ranks=8 " + what + " wire=" + wire);
  return std::find(problems.begin(), problems.end(), wanted) != problems.end();
}

TEST(AModelsProblems, AreItsLayersForwardAndBackward) {
  PlanKey usual = kUsual;
  usual.wire = Dtype::f16;
  const auto problems = problems_of(plan::widths_of(*plan::find_model("llama2-7b")),
                                    /*sequence_parallel=*/true, usual);
  EXPECT_EQ(problems.size(), 8U);
  // Queries, keys and values: rows are gathered; their gradient is scattered.
  EXPECT_TRUE(has(problems, "op=all_gather_matmul n=12288 k=4096", "bf16"));
  EXPECT_TRUE(has(problems, "op=matmul_reduce_scatter n=4096 k=12288", "f16"));
  // Down: sums are scattered; the gradient's rows are gathered.
  EXPECT_TRUE(has(problems, "op=matmul_reduce_scatter n=4096 k=11008", "f16"));
  EXPECT_TRUE(has(problems, "op=all_gather_matmul n=11008 k=4096", "bf16"));
}

TEST(AModelsProblems, AreSumsAloneWithoutSequenceParallelism) {
  const auto problems = problems_of(plan::widths_of(*plan::find_model("llama2-7b")),
                                    /*sequence_parallel=*/false, kUsual);
  EXPECT_EQ(problems.size(), 4U);
  for (const PlanKey& key : problems) EXPECT_EQ(key.op, Operator::matmul_all_reduce);
}

// Without a gate, the layers up and down are each other's backward.
TEST(AModelsProblems, AreEachThereOnce) {
  EXPECT_EQ(problems_of(plan::widths_of(*plan::find_model("bloom-7b")), /*sequence_parallel=*/true,
                        kUsual)
                .size(),
            6U);
}

// The problems must be those that plait bench model measures with the same scale.
TEST(AModelsProblems, AreScaledAsItsBenchmarkIs) {
  const auto problems = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--model", "llama2-7b", "--cache", "/nowhere", "--ranks", "3",
                               "--transport", "threads"});
    return read_tune_options(words)->problems;
  };
  const plan::BlockWidths widths =
      plan::scaled(plan::widths_of(*plan::find_model("llama2-7b")), 0.25, 3);
  for (const PlanKey& key : problems({"--scale", "0.25"})) {
    for (const std::int64_t size : {key.n, key.k})
      EXPECT_TRUE(size == widths.hidden || size == 3 * widths.hidden || size == widths.ffn ||
                  size == 2 * widths.ffn)
          << size;
  }
  EXPECT_EQ(problems({"--scale", "0.25"}).size(), problems({}).size());
  EXPECT_NE(problems({"--scale", "0.25"}), problems({}));
}

// A model is tuned for training, where weights are not packed before the call.
TEST(AModelsProblems, AreOfPlainWeightsUnlessOthersAreAskedFor) {
  const auto weight_of = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--cache", "/nowhere", "--transport", "threads"});
    return read_tune_options(words)->problems.front().weight;
  };
  EXPECT_EQ(weight_of({"--model", "llama2-7b"}), "bf16:plain");
  EXPECT_EQ(weight_of({"--model", "llama2-7b", "--weight", "bf16"}), "bf16");
  EXPECT_EQ(weight_of({"--model", "llama2-7b", "--weight", "s8"}), "s8:channel");
  EXPECT_EQ(weight_of({"--m", "8", "--n", "8", "--k", "8"}), "bf16");
  EXPECT_EQ(weight_of({"--m", "8", "--n", "8", "--k", "8", "--weight", "plain", "--dtype", "f32"}),
            "f32:plain");
}

}  // namespace
}  // namespace plait::cli
