#include "quant/scheme.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "quant/weights.h"
#include "tensor/sentence_of.h"

namespace plait::quant {
namespace {

TEST(QuantScheme, IsNamedAsItIsWritten) {
  EXPECT_EQ(name(QuantScheme{}), "s8:channel");
  EXPECT_EQ(name({.per = QuantPer::tensor}), "s8:tensor");
  EXPECT_EQ(name({.per = QuantPer::group, .group = 128}), "s8:group=128");
  EXPECT_EQ(name({.bits = 4, .per = QuantPer::group, .group = 64, .offsets = true}),
            "s4:group=64:offsets");
}

TEST(QuantScheme, ParsesWhatNameWrites) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t group : {std::int64_t{1}, std::int64_t{128}, kMost}) {
    for (const QuantScheme& scheme : all_schemes(group)) {
      EXPECT_EQ(parse_quant_scheme(name(scheme)), scheme) << name(scheme);
    }
  }
}

TEST(QuantScheme, MeansPerChannelWhereNothingElseIsSaid) {
  EXPECT_EQ(parse_quant_scheme("s8"), QuantScheme{});
  EXPECT_EQ(parse_quant_scheme("s4"), QuantScheme{.bits = 4});
  const QuantScheme shifted = {.bits = 4, .offsets = true};
  EXPECT_EQ(parse_quant_scheme("s4:offsets"), shifted);
}

TEST(QuantScheme, RefusesAllOtherText) {
  for (const char* text : {"",
                           ":",
                           "s",
                           "s2",
                           "S8",
                           "s88",
                           "s8:",
                           "s8 ",
                           " s8",
                           "s8:Channel",
                           "s8::channel",
                           "s8:channel:",
                           "s8:channel:channel",
                           "s8:tensor:channel",
                           "s8:offsets:offsets",
                           "s8:offsets:channel",
                           "s8:group",
                           "s8:group=",
                           "s8:group=0",
                           "s8:group=-1",
                           "s8:group=+1",
                           "s8:group=064",
                           "s8:group=1e3",
                           "s8:group=64k",
                           "s8:group= 64",
                           "s8:group=0x40",
                           "s8:group=9223372036854775808",
                           "s8:group=99999999999999999999999999",
                           "s8:group=64:group=64",
                           "s8:group=64,offsets",
                           "s8:channel:offsets:",
                           "channel:s8",
                           "group=64",
                           "s8:channel=1",
                           "s8:offsets=1"}) {
    EXPECT_EQ(parse_quant_scheme(text), std::nullopt) << '"' << text << '"';
  }
  EXPECT_EQ(parse_quant_scheme(std::string_view("s8\0", 3)), std::nullopt);
}

TEST(QuantScheme, IsCheckedWithASentence) {
  const auto refusal = [](const QuantScheme& scheme) {
    return sentence_of([&] { check_scheme(scheme, "test"); });
  };
  EXPECT_EQ(refusal({.bits = 5}), "test: the scheme has 5 bits; 8 or 4 are possible");
  EXPECT_EQ(refusal({.per = static_cast<QuantPer>(7)}),
            "test: the scheme shares scales in the unknown way 7");
  EXPECT_EQ(refusal({.per = QuantPer::group}),
            "test: the scheme has groups of 0; at least 1 is needed");
  EXPECT_EQ(refusal({.per = QuantPer::group, .group = -3}),
            "test: the scheme has groups of -3; at least 1 is needed");
  EXPECT_EQ(refusal({.per = QuantPer::tensor, .group = 64}),
            "test: the scheme has groups of 64 but shares its scales per tensor");
  for (const QuantScheme& scheme : all_schemes(1)) EXPECT_NO_THROW(check_scheme(scheme, "test"));
}

TEST(QuantScheme, RefusesUnknownLayouts) {
  EXPECT_EQ(sentence_of([] { check_layout(static_cast<WeightLayout>(2), "test: w"); }),
            "test: w has the unknown layout 2");
}

TEST(Groups, AreCountedWithAShortLastOne) {
  const QuantScheme of_64 = {.per = QuantPer::group, .group = 64};
  EXPECT_EQ(group_count(of_64, 0), 0);
  EXPECT_EQ(group_count(of_64, 1), 1);
  EXPECT_EQ(group_count(of_64, 64), 1);
  EXPECT_EQ(group_count(of_64, 65), 2);
  EXPECT_EQ(group_count({.per = QuantPer::channel}, 0), 1);
  EXPECT_EQ(group_count({.per = QuantPer::tensor}, 7), 1);
}

TEST(Groups, CutARangeWhereTheyEnd) {
  using Piece = std::vector<std::int64_t>;
  const auto pieces = [](std::int64_t size, std::int64_t begin, std::int64_t end) {
    std::vector<Piece> all;
    for_each_group(size, begin, end, [&](std::int64_t group, std::int64_t from, std::int64_t to) {
      all.push_back({group, from, to});
    });
    return all;
  };
  EXPECT_EQ(pieces(4, 3, 9), (std::vector<Piece>{{0, 3, 4}, {1, 4, 8}, {2, 8, 9}}));
  EXPECT_EQ(pieces(1, 5, 7), (std::vector<Piece>{{5, 5, 6}, {6, 6, 7}}));
  EXPECT_EQ(pieces(std::numeric_limits<std::int64_t>::max(), 5, 7),
            (std::vector<Piece>{{0, 5, 7}}));
  EXPECT_EQ(pieces(4, 8, 8), std::vector<Piece>{});
}

}  // namespace
}  // namespace plait::quant
