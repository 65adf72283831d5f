#include "measure/limits.h"

#include <gtest/gtest.h>

#include <string>

#include "gemm/amx/factory.h"

namespace plait::measure {
namespace {

class Multiplying : public testing::TestWithParam<Dtype> {};

TEST_P(Multiplying, CountsTheOperationsOfAllThreads) {
  const Limit limit = multiplying(GetParam(), 2);
  EXPECT_GT(limit.amount, 0);
  EXPECT_FALSE(limit.by.empty());
  limit.call();
}

INSTANTIATE_TEST_SUITE_P(Operands, Multiplying, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& one) { return std::string(name(one.param)); });

TEST(Limits, BfloatsAreMultipliedByTilesWhereTheBackendCan) {
  const bool tiles = gemm::amx::refusal(Dtype::bf16) == nullptr;
  EXPECT_EQ(multiplying(Dtype::bf16, 1).by == "AMX", tiles);
  EXPECT_NE(multiplying(Dtype::f32, 1).by, "AMX");
}

// A part of a line would begin in the middle of a vector.
TEST(Limits, ThreadsReadWholeLines) {
  for (const std::size_t bytes : {0, 2, 64, 14000, 1 << 20}) {
    for (const int threads : {1, 2, 3}) {
      const Limit limit = reading(bytes, threads);
      EXPECT_LE(limit.amount, static_cast<double>(bytes));
      EXPECT_GT(limit.amount, static_cast<double>(bytes) - 64.0 * threads);
      limit.call();
    }
  }
}

}  // namespace
}  // namespace plait::measure
