// A rank's device, as far as a prediction needs it. Peaks are taken from data sheets. The attained
// shares are assumptions, which every prediction prints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace plait::predict {

struct Device {
  // The tile that one unit of the device multiplies at once, and the share of the attained rate
  // that it reaches.
  struct Tile {
    std::int64_t rows, columns;
    double share;
  };

  std::string name;
  double peak_flops;    // bf16 or f16, per second
  double attained;      // share of the peak, for a product with tiles for all units
  double peak_memory;   // bytes per second, read or written
  double memory_share;  // share of it that is attained
  int units;            // each multiplies one tile at a time
  std::vector<Tile> tiles;
  base::Nanoseconds launch = 0;         // until a product starts
  base::Nanoseconds memory_launch = 0;  // until a copy or a sum starts
  bool in_background = false;           // copies and sums use other units than products
  double lost = 0;                      // share of the rate lost while chunks are sent
  base::Nanoseconds poll = 0;  // how soon a chunk is noticed during a product; 0: as the plan says

  double flops() const { return peak_flops * attained; }
  double memory() const { return peak_memory * memory_share; }
};

// All named devices.
std::span<const Device> devices();

// Error{invalid_argument} for an unknown name.
Device find_device(std::string_view name);

// The bytes per element that a rank's product reads and writes.
struct ProductBytes {
  double x, weight, out;
};
struct ProductSize {
  std::int64_t rows, columns, k;
};

// The time of a product by itself: the rounds of tiles that its units need, or the time to read its
// operands if that is longer.
double product_time(const Device& device, const ProductSize& size, const ProductBytes& bytes);

// The time of a part of a kernel that is already running: its share of the kernel's rounds, and of
// the operands, which other parts read too.
double part_time(const Device& device, const ProductSize& part, const ProductSize& kernel,
                 const ProductBytes& bytes);

// The time of a kernel that multiplies many groups of rows, each by its own weight.
double grouped_time(const Device& device, std::span<const std::int64_t> rows, std::int64_t columns,
                    std::int64_t k, const ProductBytes& bytes);

// The time of one of its groups: no other group reads its weight.
double group_time(const Device& device, const ProductSize& group, const ProductSize& kernel,
                  const ProductBytes& bytes);

// The assumptions about a device, one per line.
std::string describe(const Device& device);

}  // namespace plait::predict
