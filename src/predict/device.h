// What a rank's device can do, as far as a prediction needs it. Peaks are what data sheets say;
// what of them is attained is an assumption, which every prediction prints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace plait::predict {

struct Device {
  // What is multiplied at once by one of the device's units, and how much of its rate that attains.
  struct Tile {
    std::int64_t rows, columns;
    double share;
  };

  std::string name;
  double peak_flops;    // bf16 or f16, a second
  double attained;      // of it, by a product with tiles for all units
  double peak_memory;   // bytes a second, read or written
  double memory_share;  // of it, attained
  int units;            // which multiply a tile each
  std::vector<Tile> tiles;
  base::Nanoseconds launch;  // before a product begins
  base::Nanoseconds chore;   // before bytes are copied or added up
  bool beside;               // which others than the units do, meanwhile
  double lost;               // of the rate, while chunks travel
  base::Nanoseconds poll;    // how soon it notices a chunk beside a product; 0: as the plan says

  double flops() const { return peak_flops * attained; }
  double memory() const { return peak_memory * memory_share; }
};

// All that have a name.
std::span<const Device> devices();

// Error{invalid_argument} for a name that there is not.
Device find_device(std::string_view name);

// A product of a rank, in bytes for each element of what it reads and writes.
struct ProductBytes {
  double x, weight, out;
};
struct ProductSize {
  std::int64_t rows, columns, k;
};

// How long a product takes by itself: as many rounds of tiles as its units need, or as long as its
// operands take to be read.
double product_time(const Device& device, const ProductSize& size, const ProductBytes& bytes);

// Of a kernel of that size, which has begun and goes on: a part of its rounds, and of what it
// reads, which other parts read too.
double part_time(const Device& device, const ProductSize& part, const ProductSize& kernel,
                 const ProductBytes& bytes);

// One assumption a line.
std::string describe(const Device& device);

}  // namespace plait::predict
