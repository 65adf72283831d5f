// plait verify --heads draws problems of every kind, and notices a wrong bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "verify/check.h"
#include "verify/spoiling.h"

namespace plait::verify {
namespace {

TEST(HeadsCases, AreOfEveryKindAndTheSameForTheSameNumber) {
  std::map<std::string, int> kinds;
  for (int number = 0; number < 200; ++number) {
    const HeadsCase one = random_heads_case(/*seed=*/1, number, /*world=*/2);
    EXPECT_EQ(describe(one), describe(random_heads_case(1, number, 2)));
    if (one.packed) ++kinds["packed"];
    if (one.scheme) ++kinds["quantised"];
    if (one.options.vocabulary.vocab_size >= 0) ++kinds["padded"];
    if (one.options.label_smoothing > 0) ++kinds["smoothed"];
    if (one.top > 1) ++kinds["several"];
    ++kinds[one.shares[0] == one.shares[1] ? "equal" : "unequal"];
    if (std::count(one.shares.begin(), one.shares.end(), 0) > 0) ++kinds["empty"];
  }
  for (const char* kind :
       {"packed", "quantised", "padded", "smoothed", "several", "equal", "unequal", "empty"})
    EXPECT_GE(kinds[kind], 2) << kind;
}

std::string found(const Spoil& spoil) {
  const HeadsCase one = {.seed = 7,
                         .m = 5,
                         .k = 40,
                         .shares = {70, 70},
                         .top = 3,
                         .variants = {{.threads = 2}, {.threads = 1, .gives_first_id = true}}};
  return found_by_rank_1(one, spoil);
}

TEST(HeadsCheck, FindsABitOfAVariantAndOfAllOfThem) {
  EXPECT_EQ(found({}), "");
  for (const char* matrix : {"values", "ids", "loss", "log_sum_exp", "columns", "dx", "dw"}) {
    const auto damage = [&](const Results& all) {
      const TensorView view = view_of(all, matrix);
      flip(view, view.rows - 1, view.cols - 1);
    };
    const std::string one = found([&](std::size_t variant, const Results& all) {
      if (variant == 2) damage(all);
    });
    EXPECT_TRUE(contains(one, std::string("with 1 threads and first_id, and with the plan "
                                          "\"fused\": ") +
                                  matrix + " differs from serial: "))
        << one;
    const std::string both = found([&](std::size_t, const Results& all) { damage(all); });
    EXPECT_TRUE(contains(both, std::string(matrix) + " differs from that of one rank: ")) << both;
  }
}

}  // namespace
}  // namespace plait::verify
