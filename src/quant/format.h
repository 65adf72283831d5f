// How a weight's values are kept in bytes: one format a file, and one table that knows them all.
//
//   const Format& format = format_of(scheme.bits);
//   format.pack(values, count, row);          // a row of values, one s8 each, into the format
//   format.unpack(row, count, values);        // and back
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace plait::quant {

// Values begin at a byte: a part of a row that starts at a multiple of kAligned values can be
// packed and unpacked alone.
inline constexpr std::int64_t kAligned = 2;

struct Format {
  std::string_view name;  // begins a scheme's name
  int bits;
  int lowest;
  int highest;

  // Of `count` values along a row.
  std::int64_t (*row_bytes)(std::int64_t count);

  // Values are within lowest..highest; bits that they leave over in the last byte become 0.
  void (*pack)(const std::int8_t* values, std::int64_t count, std::int8_t* row);
  void (*unpack)(const std::int8_t* row, std::int64_t count, std::int8_t* values);

  int (*value)(const std::int8_t* row, std::int64_t i);

  int steps() const { return highest - lowest; }
};

std::span<const Format* const> formats();

// nullptr for bits that no format has.
const Format* find_format(int bits);

// Of a scheme that was checked.
const Format& format_of(int bits);

extern const Format kS8;
extern const Format kS4;

}  // namespace plait::quant
