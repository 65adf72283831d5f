#include "measure/matmul_case.h"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/memory.h"
#include "plait/packed_weight.h"
#include "tensor/sentence_of.h"

namespace plait::measure {
namespace {

MatmulSetup setup_of(std::int64_t n, std::int64_t k, const std::string& weight) {
  MatmulSetup setup;
  setup.m = {1};
  setup.n = n;
  setup.k = k;
  setup.weights = {weight};
  setup.backends = {""};
  return setup;
}

TEST(MatmulCase, ReadsTheWeightAsItIsKept) {
  const auto bytes = [](const std::string& weight) {
    return matmul_cases(setup_of(100, 70, weight)).front().weight_bytes();
  };
  EXPECT_EQ(bytes("plain"), 100U * 70 * 2);
  EXPECT_EQ(bytes("bf16"), 128U * 96 * 2);
  EXPECT_EQ(bytes("s8:group=7"), 128U * 10 * (32 + 4));
}

// Groups of one k take 32 times the memory of the values, and have one scale each.
TEST(MatmulCase, CountsThePaddingOfGroupsAsMemory) {
  const auto available = static_cast<double>(read_memory().available);
  const auto side = static_cast<std::int64_t>(std::sqrt(available / 16)) / 64 * 64;
  const std::string refusal =
      sentence_of([&] { MatmulOperands(setup_of(side, side, "s8:group=1")); });
  EXPECT_EQ(refusal.find("m=1 n=" + std::to_string(side)), 0U) << refusal;
  EXPECT_NE(refusal.find(" may take "), std::string::npos) << refusal;
}

}  // namespace
}  // namespace plait::measure
