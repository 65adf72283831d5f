#include "ulysses/columns.h"

#include <gtest/gtest.h>

#include "conformance/ranks.h"

namespace plait {
namespace {

using Group = std::vector<ColumnRange>;

TEST(Columns, AreSharedEvenlyAndUnevenly) {
  EXPECT_EQ(equal_columns(7, 3), (ColumnGroups{{{0, 3}}, {{3, 2}}, {{5, 2}}}));
  EXPECT_EQ(equal_columns(1, 2), (ColumnGroups{{{0, 1}}, {{1, 0}}}));
}

// Nine heads by three kv heads of two columns: q has 18 columns, k and v six each.
TEST(Columns, OfQkvAreThoseOfWholeHeads) {
  const Heads heads = {.heads = 9, .kv_heads = 3, .size = 2};
  EXPECT_EQ(qkv_columns(heads, 2),
            (ColumnGroups{{{0, 12}, {18, 4}, {24, 4}}, {{12, 6}, {22, 2}, {28, 2}}}));
  EXPECT_EQ(head_columns(heads, 2), (ColumnGroups{{{0, 12}}, {{12, 6}}}));
  const Heads turns = {.heads = 4, .kv_heads = 2, .size = 3, .interleaved = true};
  EXPECT_EQ(qkv_columns(turns, 2),
            (ColumnGroups{{{0, 6}, {6, 3}, {9, 3}}, {{12, 6}, {18, 3}, {21, 3}}}));
  for (const int world : {1, 2, 3}) {
    EXPECT_NO_THROW(ulysses::check("qkv", qkv_columns(heads, world), 30, world));
    EXPECT_NO_THROW(ulysses::check("heads", head_columns(heads, world), 18, world));
  }
  EXPECT_NO_THROW(ulysses::check("qkv", qkv_columns(turns, 2), 24, 2));
}

TEST(Columns, RefuseHeadsThatRanksCannotShare) {
  const auto refusal = [](const Heads& heads, int world) {
    return std::string(expect_error(Code::invalid_argument, [&] {
                         static_cast<void>(qkv_columns(heads, world));
                       }).what());
  };
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 2, .size = 64}, 3),
            "qkv_columns: 2 kv heads for 3 ranks, which can't share them evenly");
  EXPECT_EQ(refusal({.heads = 2, .kv_heads = 2, .size = 64}, 4),
            "qkv_columns: 2 heads for 4 ranks");
  expect_error(Code::invalid_argument,
               [] { static_cast<void>(head_columns({.heads = 9, .kv_heads = 2, .size = 64}, 1)); });
  expect_error(Code::invalid_argument,
               [] { static_cast<void>(head_columns({.heads = 0, .kv_heads = 1, .size = 64}, 1)); });
}

// Six heads by two kv heads of four columns: q has 24 columns, k and v eight each.
TEST(Columns, OfAKvHeadAreThoseOfAllRanksThatShareIt) {
  const Heads heads = {.heads = 6, .kv_heads = 2, .size = 4};
  EXPECT_EQ(qkv_columns(heads, 4), (ColumnGroups{{{0, 8}, {24, 4}, {32, 4}},
                                                 {{8, 4}, {24, 4}, {32, 4}},
                                                 {{12, 8}, {28, 4}, {36, 4}},
                                                 {{20, 4}, {28, 4}, {36, 4}}}));
  EXPECT_EQ(head_columns(heads, 4), (ColumnGroups{{{0, 8}}, {{8, 4}}, {{12, 8}}, {{20, 4}}}));
  EXPECT_NO_THROW(ulysses::check("qkv", qkv_columns(heads, 4), 40, 4));
  const Heads turns = {.heads = 4, .kv_heads = 1, .size = 3, .interleaved = true};
  EXPECT_EQ(qkv_columns(turns, 2),
            (ColumnGroups{{{0, 6}, {12, 3}, {15, 3}}, {{6, 6}, {12, 3}, {15, 3}}}));
}

// The last rank's q lies before k and v, so that its columns are one range.
TEST(Columns, ThatAreSharedGetPlacesBeyondTheWhole) {
  const ColumnGroups groups =
      ulysses::joined(qkv_columns({.heads = 2, .kv_heads = 1, .size = 4}, 2));
  EXPECT_EQ(groups, (ColumnGroups{{{0, 4}, {8, 8}}, {{4, 12}}}));
  const ulysses::Places places = ulysses::places_of(groups, 16);
  EXPECT_EQ(places.groups, (ColumnGroups{{{0, 4}, {8, 8}}, {{4, 4}, {16, 8}}}));
  EXPECT_EQ(places.beyond, 8);
  ASSERT_EQ(places.shared.size(), 1U);
  EXPECT_EQ(places.shared[0].columns, (ColumnRange{8, 8}));
  EXPECT_EQ(places.shared[0].copies, (std::vector<std::int64_t>{16}));
  EXPECT_EQ(ulysses::places_of(equal_columns(9, 2), 9).beyond, 0);
}

TEST(Columns, AreRefusedUnlessEachIsInAGroup) {
  const auto refusal = [](const ColumnGroups& columns) {
    return std::string(
        expect_error(Code::invalid_argument, [&] { ulysses::check("x", columns, 8, 2); }).what());
  };
  EXPECT_EQ(refusal({{{0, 8}}}), "x: there are 1 groups of columns for 2 ranks");
  EXPECT_EQ(refusal({{{0, 4}}, {{5, 3}}}), "x: column 4 is in no group");
  EXPECT_EQ(refusal({{{0, 4}}, {{4, 3}}}), "x: column 7 is in no group");
  EXPECT_EQ(refusal({{{0, 4}, {3, 1}}, {{4, 4}}}), "x: rank 0 gets column 3 twice");
  EXPECT_EQ(refusal({{{0, 4}}, {{4, 5}}}), "x: rank 1 gets 5 columns from 4 on, of 8");
  EXPECT_EQ(refusal({{{0, 9}}, {{-1, 2}}}), "x: rank 0 gets 9 columns from 0 on, of 8");
}

TEST(Columns, AreJoinedWhereTheyAreNeighbours) {
  EXPECT_EQ(ulysses::joined({{{0, 2}, {2, 3}, {5, 0}}, {{7, 1}, {6, 1}, {5, 1}}}),
            (ColumnGroups{{{0, 5}}, {{7, 1}, {6, 1}, {5, 1}}}));
}

}  // namespace
}  // namespace plait
