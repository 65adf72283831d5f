// One value per byte.
#include <algorithm>

#include "quant/format.h"

namespace plait::quant {
namespace {

std::int64_t row_bytes(std::int64_t count) { return count; }

void pack(const std::int8_t* values, std::int64_t count, std::int8_t* row) {
  std::copy_n(values, count, row);
}

void unpack(const std::int8_t* row, std::int64_t count, std::int8_t* values) {
  std::copy_n(row, count, values);
}

int value(const std::int8_t* row, std::int64_t i) { return row[i]; }

}  // namespace

constexpr Format kS8 = {.name = "s8",
                        .bits = 8,
                        .lowest = -128,
                        .highest = 127,
                        .row_bytes = row_bytes,
                        .pack = pack,
                        .unpack = unpack,
                        .value = value};

}  // namespace plait::quant
