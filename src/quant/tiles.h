// A weight by tiles that stay in the first cache, columns along the rows whatever the layout.
//
//   for_each_tile({.n = n, .k = k, .threads = 0}, [&](const Tile& tile) {
//     Block<float> block;
//     read_tile(weight, tile, block);   // block.row(c)[i] is the weight of column tile.column + c,
//   });                                 // k tile.k + i
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
  // 16 elements longer than a row, so that a column's elements lie in different sets of the cache.
  static constexpr std::int64_t kStride = kTileK + 16;

  T* row(std::int64_t column) { return elements_.data() + column * kStride; }

 private:
  alignas(64) std::array<T, kTileColumns * kStride> elements_;
};

struct Tiling {
  std::int64_t n, k;
  int threads;  // 0: as many as OpenMP would use
};

// All tiles of a column are one thread's, in the order of k: a column's own needs no lock.
void for_each_tile(const Tiling& tiling, base::FunctionRef<void(const Tile&)> body);

// Weights in f32.
void read_tile(const WeightView& weight, const Tile& tile, Block<float>& block);

// Weights in f32 to `out`, converted to its dtype. The layout is that of `out`.
void write_tile(Block<float>& block, const Tile& tile, const TensorView& out, WeightLayout layout);

// Packed values, one s8 each.
void read_values(const WeightView& packed, const Format& format, const Tile& tile,
                 Block<std::int8_t>& block);

}  // namespace plait::quant
