#include "cli/bench/matmul_case.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cli/host/memory.h"
#include "plait/packed_weight.h"
#include "tensor/sentence_of.h"

namespace plait::cli {
namespace {

MatmulOptions options_of(std::int64_t n, std::int64_t k, const std::string& weight) {
  MatmulOptions options;
  options.m = {1};
  options.n = n;
  options.k = k;
  options.weights = {weight};
  options.backends = {""};
  return options;
}

TEST(MatmulCase, ReadsTheWeightAsItIsKept) {
  const auto bytes = [](const std::string& weight) {
    return matmul_cases(options_of(100, 70, weight)).front().weight_bytes();
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
      sentence_of([&] { MatmulOperands(options_of(side, side, "s8:group=1")); });
  EXPECT_EQ(refusal.find("m=1 n=" + std::to_string(side)), 0U) << refusal;
  EXPECT_NE(refusal.find(" may take "), std::string::npos) << refusal;
}

}  // namespace
}  // namespace plait::cli
