// A weight by tiles that stay in the first cache, columns along the rows whatever the layout.
//
//   for_each_tile(n, k, [&](const Tile& tile) {
//     read_tile(weight, tile, block);   // block.row(c)[i] is the weight of column tile.column + c,
//   });                                 // k tile.k + i
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

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
  // 16 elements longer than a row, so that a column's elements lie in different sets of the cache.
  static constexpr std::int64_t kStride = kTileK + 16;

  T* row(std::int64_t column) { return elements_.data() + column * kStride; }

 private:
  alignas(64) std::array<T, kTileColumns * kStride> elements_;
};

// Columns advance first: of a weight in in_out, neighbours share what a cache line holds.
template <class Body>
void for_each_tile(std::int64_t n, std::int64_t k, const Body& body) {
  if (n == 0) return;
  for (std::int64_t at = 0; at < k; at += kTileK) {
    for (std::int64_t column = 0; column < n; column += kTileColumns) {
      body(Tile{.column = column,
                .columns = std::min(kTileColumns, n - column),
                .k = at,
                .k_count = std::min(kTileK, k - at)});
    }
  }
}

// Weights in f32.
void read_tile(const WeightView& weight, const Tile& tile, Block<float>& block);

// Weights in f32 to `out`, converted to its dtype. The layout is that of `out`.
void write_tile(Block<float>& block, const Tile& tile, const TensorView& out, WeightLayout layout);

// Packed values, one s8 each.
void read_values(const WeightView& packed, const Format& format, const Tile& tile,
                 Block<std::int8_t>& block);

}  // namespace plait::quant
