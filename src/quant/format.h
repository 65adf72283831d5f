// Storage formats for a weight's values: one file per format, and one table of all formats.
//
//   const Format& format = format_of(scheme.bits);
//   format.pack(values, count, row);          // packs a row of values, one s8 each
//   format.unpack(row, count, values);        // unpacks them
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace plait::quant {

// Packed values at multiples of kAligned start at a byte, so a part of a row that starts there can
// be packed and unpacked alone.
inline constexpr std::int64_t kAligned = 2;

struct Format {
  std::string_view name;  // the start of a scheme's name
  int bits;
  int lowest;
  int highest;

  // The bytes of `count` values along a row.
  std::int64_t (*row_bytes)(std::int64_t count);

  // Values must be within lowest..highest. Unused bits of the last byte become 0.
  void (*pack)(const std::int8_t* values, std::int64_t count, std::int8_t* row);
  void (*unpack)(const std::int8_t* row, std::int64_t count, std::int8_t* values);

  int (*value)(const std::int8_t* row, std::int64_t i);

  int steps() const { return highest - lowest; }
};

std::span<const Format* const> formats();

// nullptr if no format has so many bits.
const Format* find_format(int bits);

// The scheme must have been checked: see check_scheme().
const Format& format_of(int bits);

extern const Format kS8;
extern const Format kS4;

}  // namespace plait::quant
