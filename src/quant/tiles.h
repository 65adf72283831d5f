// Splits a weight into tiles that fit the L1 cache. A tile's rows are columns of the weight,
// whatever the layout.
//
//   for_each_tile({.n = n, .k = k, .threads = 0}, [&](const Tile& tile) {
//     Block<float> block;
//     read_tile(weight, tile, block);   // block.row(c)[i] is the weight of column
//   });                                 // tile.column + c, k = tile.k + i
#pragma once

#include <array>
#include <cstdint>

#include "base/function_ref.h"
#include "plait/weight.h"
#include "quant/format.h"

namespace plait::quant {

inline constexpr std::int64_t kTileColumns = 32;
inline constexpr std::int64_t kTileK = 256;
static_assert(kTileColumns % kAligned == 0 && kTileK % kAligned == 0);

struct Tile {
  std::int64_t column, columns;
  std::int64_t k, k_count;
};

template <class T>
class Block {
 public:
  // A stride of 16 extra elements puts the elements of a column into different cache sets.
  static constexpr std::int64_t kStride = kTileK + 16;

  T* row(std::int64_t column) { return elements_.data() + column * kStride; }

 private:
  alignas(64) std::array<T, kTileColumns * kStride> elements_;
};

struct Tiling {
  std::int64_t n, k;
  int threads;  // 0: OpenMP's default
};

// One thread processes all tiles of a column, in the order of k, so data of a column needs no lock.
void for_each_tile(const Tiling& tiling, base::FunctionRef<void(const Tile&)> body);

// Reads the weights of a tile as f32.
void read_tile(const WeightView& weight, const Tile& tile, Block<float>& block);

// Writes f32 weights to `out`, converted to its dtype. `layout` is that of `out`.
void write_tile(Block<float>& block, const Tile& tile, const TensorView& out, WeightLayout layout);

// Unpacks the values of a tile, one s8 each.
void read_values(const WeightView& packed, const Format& format, const Tile& tile,
                 Block<std::int8_t>& block);

}  // namespace plait::quant
