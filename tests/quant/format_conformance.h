// The contract of every weight format, for any number of bits.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "quant/format.h"

namespace plait::quant {

// `count` values that cover the whole range of the format.
inline std::vector<std::int8_t> values_in_turn(const Format& format, std::int64_t count) {
  std::vector<std::int8_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t range = format.steps() + 1;
    values.push_back(static_cast<std::int8_t>(format.lowest + i * 7 % range));
  }
  return values;
}

// Packs and unpacks rows of 0 to 600 values, with a guarded value at both ends.
inline void expect_round_trips(const Format& format) {
  for (std::int64_t count = 0; count <= 600; count = count < 70 ? count + 1 : count + 53) {
    const auto values = values_in_turn(format, count);
    const auto bytes = static_cast<std::size_t>(format.row_bytes(count));
    std::vector<std::int8_t> row(bytes + 1, 0x5a);
    format.pack(values.data(), count, row.data());
    EXPECT_EQ(row.back(), 0x5a) << count;
    std::vector<std::int8_t> back(values.size() + 1, 0x5a);
    format.unpack(row.data(), count, back.data());
    EXPECT_EQ(back.back(), 0x5a) << count;
    back.pop_back();
    EXPECT_EQ(back, values) << count;
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(format.value(row.data(), i), values[static_cast<std::size_t>(i)]) << i;
    }
  }
}

// A row from an aligned position on can be unpacked by itself.
inline void expect_parts_stand_alone(const Format& format) {
  const auto values = values_in_turn(format, 21);
  std::vector<std::int8_t> whole(static_cast<std::size_t>(format.row_bytes(21)));
  std::vector<std::int8_t> parts(whole.size());
  format.pack(values.data(), 21, whole.data());
  for (std::int64_t at = 0; at < 21; at += kAligned) {
    const std::int64_t count = at + kAligned <= 21 ? kAligned : 21 - at;
    format.pack(values.data() + at, count, parts.data() + format.row_bytes(at));
  }
  EXPECT_EQ(parts, whole);
}

}  // namespace plait::quant
