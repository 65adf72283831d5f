// A product's description as text, and which descriptions are refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plait/error.h"
#include "plait/gemm.h"
#include "quant/chance.h"
#include "quant/weights.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

std::string refusal_of(const GemmDesc& desc) {
  return sentence_of([&] { select_gemm(desc); });
}

TEST(QuantDesc, IsDescribedByText) {
  for (const QuantScheme& scheme : all_schemes(96)) {
    const GemmDesc desc = {.m = 8, .n = 4096, .k = 11, .x = Dtype::f16, .quant = scheme};
    EXPECT_EQ(name(desc), "m=8 n=4096 k=11 x=f16 w=" + name(scheme) + " out=bf16");
    EXPECT_EQ(parse_gemm(name(desc)), desc);
  }
  EXPECT_EQ(parse_gemm("m=1 n=2 k=3 w=s4").quant, (QuantScheme{.bits = 4}));
  EXPECT_THROW(parse_gemm("m=1 n=2 k=3 w=f32 w=s8"), Error);
}

TEST(QuantDesc, RefusesWhatIsNoScheme) {
  const GemmDesc good = {.m = 1, .n = 2, .k = 3};
  const auto with = [&](const QuantScheme& scheme) {
    GemmDesc desc = good;
    desc.quant = scheme;
    return refusal_of(desc);
  };
  EXPECT_NE(with({.bits = 5}).find("matmul: the scheme has 5 bits; 8 or 4 are possible"),
            std::string::npos);
  EXPECT_NE(with({.per = QuantPer::group}).find("matmul: the scheme has groups of 0"),
            std::string::npos);
  EXPECT_NE(with({.group = 3}).find("groups of 3 but shares its scales per channel"),
            std::string::npos);
  GemmDesc bare = good;
  bare.weight = Dtype::s8;
  EXPECT_NE(refusal_of(bare).find("matmul: weight is s8, which needs a scheme such as s8:channel"),
            std::string::npos);
}

// Why each backend can't, also with a quantised weight.
TEST(QuantDesc, IsServedAsWideAsXIs) {
  for (const Dtype x : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const GemmDesc desc = {.m = 1, .n = 2, .k = 3, .x = x, .quant = QuantScheme{}};
    bool f32 = false;
    for (const GemmChoice& choice : explain_gemm(desc)) {
      if (choice.operand == Dtype::bf16 && x != Dtype::bf16) {
        EXPECT_EQ(choice.refusal, "x is not bf16") << choice.backend;
      }
      f32 = f32 || (choice.operand == Dtype::f32 && choice.refusal.empty());
    }
    EXPECT_TRUE(f32);
  }
}

// Random input, the same in every run: what is accepted is what name() writes of it, the rest is
// refused with a sentence.
TEST(FuzzDesc, AcceptsWhatItCanSayAgain) {
  Chance chance(4);
  const std::vector<std::string> words = {
      "m=", "n=",     "k=",  "x=",       "w=",      "out=",         " ",          "1",
      "-",  "bf16",   "f16", "f32",      "s8",      "s4",           "0",          "=",
      ":",  "group=", "64",  ":offsets", "channel", "m=1 n=2 k=3 ", "99999999999"};
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < rounds(60000); ++round) {
    std::string text;
    if (chance.one_in(2)) {
      GemmDesc desc = {.m = chance.below(9), .n = chance.below(9), .k = chance.below(9)};
      if (chance.one_in(2)) desc.quant = chance.of(all_schemes(1 + chance.below(300)));
      text = name(desc);
    }
    for (std::int64_t i = chance.below(10); i > 0; --i) text += chance.of(words);
    for (std::int64_t i = chance.below(3); i > 0; --i) mutate(text, chance);
    try {
      const GemmDesc desc = parse_gemm(text);
      ++accepted;
      ASSERT_EQ(parse_gemm(name(desc)), desc) << text;
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.code(), Code::invalid_argument) << text;
      ASSERT_EQ(std::string_view(error.what()).find("matmul: "), 0U) << error.what();
    }
  }
  EXPECT_GT(accepted, rounds(1000));
  EXPECT_GT(refused, rounds(1000));
}

}  // namespace
}  // namespace plait
