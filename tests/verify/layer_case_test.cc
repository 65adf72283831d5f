#include "verify/layer_case.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

namespace plait::verify {
namespace {

TEST(LayerCases, SayWhichTreeTheyHave) {
  LayerCase layer;
  layer.shares = {512, 512};
  EXPECT_TRUE(describe(layer).ends_with(" tree=k")) << describe(layer);
  layer.wire = Dtype::bf16;
  EXPECT_TRUE(describe(layer).ends_with(" tree=ranks")) << describe(layer);
}

TEST(LayerCases, AreTheSameForTheSameNumber) {
  for (int number = 0; number < 20; ++number) {
    const std::string text = describe(random_layer_case(/*seed=*/3, number, /*world=*/3));
    EXPECT_EQ(text, describe(random_layer_case(3, number, 3)));
    EXPECT_NE(text, describe(random_layer_case(3, number + 1, 3)));
  }
}

TEST(LayerCases, AreOfEveryKind) {
  std::map<std::string, int> kinds;
  for (int number = 0; number < 200; ++number) {
    const LayerCase one = random_layer_case(/*seed=*/1, number, /*world=*/2);
    ASSERT_EQ(one.shares.size(), 2U);
    EXPECT_FALSE(one.variants.empty());
    ++kinds[one.row ? "row" : "column"];
    if (one.packed) ++kinds["packed"];
    if (one.scheme) ++kinds["quantised"];
    if (one.accumulate) ++kinds["accumulated"];
    if (!one.sequence_parallel) ++kinds["all rows"];
    if (one.in_flight > 1) ++kinds["in flight"];
  }
  for (const char* kind :
       {"row", "column", "packed", "quantised", "accumulated", "all rows", "in flight"})
    EXPECT_GE(kinds[kind], 5) << kind;
}

}  // namespace
}  // namespace plait::verify
