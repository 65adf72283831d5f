// plait verify --ulysses draws problems of every kind, and notices a wrong bit.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "conformance/ranks.h"
#include "verify/check.h"
#include "verify/spoiling.h"

namespace plait::verify {
namespace {

TEST(UlyssesCases, AreTheSameForTheSameNumber) {
  for (int number = 0; number < 20; ++number) {
    const std::string text = describe(random_ulysses_case(/*seed=*/3, number, /*world=*/3));
    EXPECT_EQ(text, describe(random_ulysses_case(3, number, 3)));
    EXPECT_NE(text, describe(random_ulysses_case(3, number + 1, 3)));
  }
}

TEST(UlyssesCases, AreOfEveryKind) {
  std::map<std::string, int> kinds;
  for (int number = 0; number < 200; ++number) {
    const UlyssesCase one = random_ulysses_case(/*seed=*/1, number, /*world=*/2);
    ++kinds[one.product_first ? "first" : "last"];
    if (one.packed) ++kinds["packed"];
    if (one.scheme) ++kinds["quantised"];
    if (one.gathered) ++kinds["gathered"];
    if (one.shared) ++kinds[one.product_first ? "copied" : "summed"];
    if (one.columns[0].size() > 2) ++kinds["pieces"];
    if (one.columns[0].empty() || one.columns[1].empty()) ++kinds["empty"];
  }
  for (const char* kind :
       {"first", "last", "packed", "quantised", "gathered", "copied", "summed", "pieces", "empty"})
    EXPECT_GE(kinds[kind], 3) << kind;
}

std::string found(bool product_first, const Spoil& spoil) {
  const UlyssesCase one = {.seed = 7,
                           .product_first = product_first,
                           .m = 90,
                           .n = 70,
                           .k = 40,
                           .columns = {{{30, product_first ? 40 : 10}}, {{0, 30}}},
                           .bias = true,
                           .gathered = !product_first,
                           .variants = {{.plan = parse_plan("pipelined parts=3")}, {.plan = {}}}};
  return found_by_rank_1(one, spoil);
}

// Columns 20 to 25 are added up. A check that leaves this out fails.
TEST(UlyssesCheck, AddsWhatRanksShare) {
  for (const bool shared : {true, false}) {
    const UlyssesCase one = {.seed = 7,
                             .product_first = false,
                             .m = 30,
                             .n = 20,
                             .k = 40,
                             .columns = {{{0, 26}}, {{20, 20}}},
                             .shared = shared,
                             .gathered = true,
                             .variants = {{.plan = {}}}};
    run_as_threads(2, [&](Communicator& comm) {
      EXPECT_EQ(verify_case(one, comm, {}).failure.empty(), shared);
    });
  }
}

TEST(UlyssesCheck, FindsABitOfAVariantAndOfAllOfThem) {
  for (const bool product_first : {true, false}) {
    EXPECT_EQ(found(product_first, {}), "");
    for (const char* matrix : {"out", "gathered"}) {
      if (product_first && matrix == std::string("gathered")) continue;
      const auto damage = [&](const Results& all) {
        const TensorView view = view_of(all, matrix);
        flip(view, view.rows - 1, view.cols - 1);
      };
      const std::string one = found(product_first, [&](std::size_t variant, const Results& all) {
        if (variant == 2) damage(all);
      });
      EXPECT_TRUE(contains(
          one, std::string("with the plan \"fused\": ") + matrix + " differs from serial: "))
          << one;
      const std::string both =
          found(product_first, [&](std::size_t, const Results& all) { damage(all); });
      EXPECT_TRUE(contains(both, std::string(matrix) + " differs from ")) << both;
    }
  }
}

}  // namespace
}  // namespace plait::verify
