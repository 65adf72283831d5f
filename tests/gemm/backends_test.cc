#include "gemm/backends.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace plait::gemm {
namespace {

GemmDesc desc_of(Dtype x, Dtype weight, std::optional<QuantScheme> quant = {}) {
  return {.m = 4, .n = 4, .k = 4, .x = x, .weight = weight, .out = Dtype::f32, .quant = quant};
}

TEST(Backends, MultiplyTheNarrowestThatHoldsBothOperands) {
  EXPECT_EQ(operand_of(desc_of(Dtype::bf16, Dtype::bf16)), Dtype::bf16);
  EXPECT_EQ(operand_of(desc_of(Dtype::bf16, Dtype::f32)), Dtype::f32);
  EXPECT_EQ(operand_of(desc_of(Dtype::bf16, Dtype::f16)), Dtype::f32);
  EXPECT_EQ(operand_of(desc_of(Dtype::f32, Dtype::bf16)), Dtype::f32);
  EXPECT_EQ(operand_of(desc_of(Dtype::f16, Dtype::f16)), Dtype::f32);
}

// Whatever dtype the description names beside the scheme.
TEST(Backends, TakeAQuantisedWeightAsExactInBf16) {
  const QuantScheme scheme = {.bits = 8};
  EXPECT_EQ(operand_of(desc_of(Dtype::bf16, Dtype::f32, scheme)), Dtype::bf16);
  EXPECT_EQ(operand_of(desc_of(Dtype::f16, Dtype::bf16, scheme)), Dtype::f32);
}

TEST(Backends, OfBf16RefuseOtherElementsInWords) {
  for (const Backend& backend : backends()) {
    if (backend.operand != Dtype::bf16) continue;
    EXPECT_STREQ(refusal(backend, desc_of(Dtype::f32, Dtype::bf16)),
                 "x and the weight are not both bf16");
    EXPECT_STREQ(refusal(backend, desc_of(Dtype::f16, Dtype::bf16, QuantScheme{.bits = 4})),
                 "x is not bf16");
  }
}

TEST(Backends, OfF32TakeEveryElementThatTheyTakeAtAll) {
  for (const Backend& backend : backends()) {
    if (backend.operand != Dtype::f32) continue;
    for (const Dtype x : {Dtype::f32, Dtype::bf16, Dtype::f16})
      EXPECT_STREQ(refusal(backend, desc_of(x, Dtype::f16)), backend.refusal(Dtype::f32));
  }
}

TEST(Backends, MakeKernelsOfTheirOperand) {
  std::set<std::string> seen;
  for (const Backend& backend : backends()) {
    EXPECT_TRUE(seen.insert(backend.name + std::string(name(backend.operand))).second);
    if (backend.refusal(backend.operand) != nullptr) continue;
    const auto kernel = backend.create(backend.operand);
    ASSERT_NE(kernel, nullptr) << backend.name;
    EXPECT_EQ(kernel->operand(), backend.operand) << backend.name;
  }
}

}  // namespace
}  // namespace plait::gemm
