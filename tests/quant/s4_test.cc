#include <limits>

#include "quant/format_conformance.h"

namespace plait::quant {
namespace {

TEST(S4, RoundTrips) { expect_round_trips(kS4); }

TEST(S4, PartsStandAlone) { expect_parts_stand_alone(kS4); }

TEST(S4, KeepsTheFirstValueInTheLowHalf) {
  const std::int8_t values[] = {3, -2, -8};
  std::int8_t row[] = {0x55, 0x55};
  kS4.pack(values, 3, row);
  EXPECT_EQ(static_cast<std::uint8_t>(row[0]), 0xe3);
  EXPECT_EQ(static_cast<std::uint8_t>(row[1]), 0x08);  // and 0 in the unused half
}

TEST(S4, RoundsOddRowsUp) {
  EXPECT_EQ(kS4.row_bytes(0), 0);
  EXPECT_EQ(kS4.row_bytes(7), 4);
  EXPECT_EQ(kS4.row_bytes(std::numeric_limits<std::int64_t>::max()), std::int64_t{1} << 62);
}

TEST(S4, ReadsEveryByte) {
  for (int byte = -128; byte < 128; ++byte) {
    const auto row = static_cast<std::int8_t>(byte);
    EXPECT_EQ(kS4.value(&row, 1) * 16 + (kS4.value(&row, 0) & 15), byte);
  }
}

}  // namespace
}  // namespace plait::quant
