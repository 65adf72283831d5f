#include "plait/operator.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(Operators, AreReadAsTheyAreNamed) {
  for (std::size_t i = 0; i < kOperatorTraits.size(); ++i) {
    const auto op = static_cast<Operator>(i);
    EXPECT_EQ(parse_operator(name(op)), op) << name(op);
  }
  EXPECT_EQ(name(Operator::matmul_all_reduce), "matmul_all_reduce");
}

TEST(Operators, MayBeTypedWithHyphens) {
  EXPECT_EQ(parse_operator("matmul-all-reduce"), Operator::matmul_all_reduce);
  EXPECT_EQ(parse_operator("all_gather-matmul"), Operator::all_gather_matmul);
}

TEST(Operators, OfOtherNamesAreNone) {
  for (const char* text : {"", "matmul ", "MATMUL", "matmul_all", "all_reduce"})
    EXPECT_EQ(parse_operator(text), std::nullopt) << text;
}

}  // namespace
}  // namespace plait
