// plait verify --experts draws layers of every kind, and notices a wrong bit.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "verify/check.h"
#include "verify/spoiling.h"

namespace plait::verify {
namespace {

TEST(ExpertsCases, AreTheSameForTheSameNumber) {
  for (int number = 0; number < 20; ++number) {
    const std::string text = describe(random_experts_case(/*seed=*/3, number, /*world=*/3));
    EXPECT_EQ(text, describe(random_experts_case(3, number, 3)));
    EXPECT_NE(text, describe(random_experts_case(3, number + 1, 3)));
  }
}

TEST(ExpertsCases, AreOfEveryKind) {
  std::map<std::string, int> kinds;
  for (int number = 0; number < 200; ++number) {
    const ExpertsCase one = random_experts_case(/*seed=*/1, number, /*world=*/2);
    ++kinds[std::string(name(one.desc.activation))];
    ++kinds[std::string(name(one.desc.weights_at))];
    ++kinds[one.replicated ? "replicated" : one.gradients ? "gradients" : "forward"];
    if (one.desc.weight.scheme) ++kinds["quantised"];
    if (one.desc.weight.is_packed) ++kinds["packed"];
    if (!one.desc.ranks.empty()) ++kinds["placed"];
    if (!one.replicated && (one.rows[0] == 0 || one.rows[1] == 0)) ++kinds["no rows"];
    if (one.skewed) ++kinds["skewed"];
    if (one.desc.parts > 1) ++kinds[one.gradients ? "gradients of parts" : "parts"];
    if (one.layout == WeightLayout::in_out && one.gradients) ++kinds["in_out"];
  }
  for (const char* kind : {"swiglu", "swiglu_interleaved", "silu", "combine", "activation",
                           "replicated", "gradients", "forward", "quantised", "packed", "placed",
                           "no rows", "skewed", "in_out", "parts", "gradients of parts"})
    EXPECT_GE(kinds[kind], 3) << kind;
}

std::string found(const Spoil& spoil) {
  const ExpertsCase one = {.seed = 7,
                           .desc = {.hidden = 40, .inner = 24, .experts = 3, .top = 2},
                           .rows = {9, 14},
                           .gradients = true,
                           .biases = true,
                           .variants = {{.schedule = Schedule::fused, .threads = 2}}};
  return found_by_rank_1(one, spoil);
}

TEST(ExpertsCheck, FindsABitOfAVariantAndOfAllOfThem) {
  EXPECT_EQ(found({}), "");
  for (const std::string matrix : {"out", "grad_x", "grad_weights", "grad_up", "grad_down",
                                   "grad_up_biases", "grad_down_biases"}) {
    const auto damage = [&](const Results& all) {
      const TensorView view = view_of(all, matrix);
      flip(view, view.rows - 1, view.cols - 1);
    };
    const std::string one = found([&](std::size_t variant, const Results& all) {
      if (variant == 1) damage(all);
    });
    EXPECT_TRUE(contains(one, "fused, 2 threads: " + matrix + " differs from serial: ")) << one;
    const std::string both = found([&](std::size_t variant, const Results& all) {
      if (variant != kOnOneRank) damage(all);
    });
    EXPECT_TRUE(contains(both, matrix + " differs from that of one rank alone")) << both;
  }
}

}  // namespace
}  // namespace plait::verify
