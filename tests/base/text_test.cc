#include "base/text.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace plait::base {
namespace {

TEST(Text, WholeNumbersOnly) {
  EXPECT_EQ(parse_int("42"), 42);
  EXPECT_EQ(parse_int("-1"), -1);
  for (const char* bad : {"", " 1", "1 ", "1.0", "0x10", "12a", "99999999999999999999"}) {
    EXPECT_FALSE(parse_int(bad)) << bad;
  }
}

TEST(Text, DurationsCarryTheirUnit) {
  EXPECT_EQ(parse_duration("5us"), 5 * kMicrosecond);
  EXPECT_EQ(parse_duration("1.5ms"), 1500 * kMicrosecond);
  EXPECT_EQ(parse_duration("60"), 60 * kSecond);
  EXPECT_EQ(parse_duration("60", kMillisecond), 60 * kMillisecond);
  EXPECT_EQ(parse_duration("2min"), 120 * kSecond);
  EXPECT_EQ(parse_duration("1e3ns"), 1000);
  for (const char* bad : {"", "us", "-1s", "5 us", "5parsec", "nan", "inf", "1e300s"}) {
    EXPECT_FALSE(parse_duration(bad)) << bad;
  }
}

TEST(Text, BandwidthsAreBytesPerSecond) {
  EXPECT_EQ(parse_bandwidth("25gbit"), 25e9 / 8);
  EXPECT_EQ(parse_bandwidth("25Gbit"), 25e9 / 8);
  EXPECT_EQ(parse_bandwidth("3GB/s"), 3e9);
  EXPECT_EQ(parse_bandwidth("0.5mbyte"), 5e5);
  for (const char* bad : {"", "25", "gbit", "-1gbit", "25gbits", "25gb"}) {
    EXPECT_FALSE(parse_bandwidth(bad)) << bad;
  }
}

TEST(Text, WritesBytesInHex) {
  EXPECT_EQ(to_hex(""), "");
  EXPECT_EQ(to_hex(std::string("\x00\x7f\xff", 3)), "007fff");
}

TEST(Text, ShowsFiguresForPeople) {
  EXPECT_EQ(show_duration(5), "5 ns");
  EXPECT_EQ(show_duration(1250), "1.25 us");
  EXPECT_EQ(show_duration(60 * kSecond), "60 s");
  EXPECT_EQ(show_bytes(65536), "64 KiB");
  EXPECT_EQ(show_count(1, "process"), "1 process");
  EXPECT_EQ(show_count(2, "process"), "2 processes");
  EXPECT_EQ(show_count(0, "rank"), "0 ranks");
  EXPECT_EQ(show_list({}), "");
  EXPECT_EQ(show_list({1}), "1");
  EXPECT_EQ(show_list({0, 2, 5}), "0, 2 and 5");
  std::vector<int> many(17);
  std::iota(many.begin(), many.end(), 2);
  const std::string first = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17";
  EXPECT_EQ(show_list(many), first + " and 18");
  many.resize(20000);
  EXPECT_EQ(show_list(many), first + " and 19984 more");
}

}  // namespace
}  // namespace plait::base
