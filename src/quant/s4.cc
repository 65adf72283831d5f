// Two values per byte, the first in the low half: 3, -2 → 0xe3.
#include "quant/format.h"

namespace plait::quant {
namespace {

// Reads the low half of a byte as two's complement: 0xe → -2.
std::int8_t low(int byte) { return static_cast<std::int8_t>(((byte & 15) ^ 8) - 8); }
std::int8_t high(int byte) { return static_cast<std::int8_t>(byte >> 4); }

std::int64_t row_bytes(std::int64_t count) { return count / 2 + count % 2; }

void pack(const std::int8_t* values, std::int64_t count, std::int8_t* row) {
  const std::int64_t pairs = count / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    row[i] = static_cast<std::int8_t>((values[2 * i] & 15) | (values[2 * i + 1] * 16));
  }
  if (count % 2 != 0) row[pairs] = static_cast<std::int8_t>(values[count - 1] & 15);
}

void unpack(const std::int8_t* row, std::int64_t count, std::int8_t* values) {
  const std::int64_t pairs = count / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    values[2 * i] = low(row[i]);
    values[2 * i + 1] = high(row[i]);
  }
  if (count % 2 != 0) values[count - 1] = low(row[pairs]);
}

int value(const std::int8_t* row, std::int64_t i) {
  return i % 2 == 0 ? low(row[i / 2]) : high(row[i / 2]);
}

}  // namespace

constexpr Format kS4 = {.name = "s4",
                        .bits = 4,
                        .lowest = -8,
                        .highest = 7,
                        .row_bytes = row_bytes,
                        .pack = pack,
                        .unpack = unpack,
                        .value = value};

}  // namespace plait::quant
