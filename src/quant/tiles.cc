#include "quant/tiles.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/round_up.h"
#include "plait/dtype.h"

namespace plait::quant {
namespace {

// The address of element `col` in a row.
template <class View>
auto at(const View& view, std::int64_t row, std::int64_t col) {
  return view.column_range(col, col).row(row);
}

template <class T>
void scatter(const T* values, std::int64_t columns, T* column) {
  for (std::int64_t c = 0; c < columns; ++c) column[c * Block<T>::kStride] = values[c];
}

template <class T>
void gather(const T* column, std::int64_t columns, T* values) {
  for (std::int64_t c = 0; c < columns; ++c) values[c] = column[c * Block<T>::kStride];
}

using base::ceil_div;

// Fewer weights take less time than waking a thread.
constexpr std::int64_t kLeastWeights = 32768;

// The columns that a thread takes at a time. Strips are small, so that threads which start late
// take fewer.
std::int64_t strip_columns(const Tiling& tiling, int threads) {
  const std::int64_t strips = threads == 1 ? 1 : std::int64_t{4} * threads;
  const std::int64_t columns =
      std::max(ceil_div(tiling.n, strips), ceil_div(kLeastWeights, tiling.k));
  return base::round_up(columns, kTileColumns);
}

}  // namespace

void for_each_tile(const Tiling& tiling, base::FunctionRef<void(const Tile&)> body) {
  if (tiling.n == 0 || tiling.k == 0) return;
  const int threads = base::thread_count(tiling.threads);
  const std::int64_t step = strip_columns(tiling, threads);
  base::parallel_for(ceil_div(tiling.n, step), threads, [&](std::int64_t strip) {
    const std::int64_t end = std::min((strip + 1) * step, tiling.n);
    // Columns advance first: in layout in_out, neighbouring columns share cache lines.
    for (std::int64_t k = 0; k < tiling.k; k += kTileK) {
      for (std::int64_t column = strip * step; column < end; column += kTileColumns) {
        body({.column = column,
              .columns = std::min(kTileColumns, end - column),
              .k = k,
              .k_count = std::min(kTileK, tiling.k - k)});
      }
    }
  });
}

void read_tile(const WeightView& weight, const Tile& tile, Block<float>& block) {
  const ConstTensorView& view = weight.view;
  if (weight.layout == WeightLayout::out_in) {
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      convert(at(view, tile.column + c, tile.k), view.dtype, block.row(c), Dtype::f32,
              static_cast<std::size_t>(tile.k_count));
    }
    return;
  }
  std::array<float, kTileColumns> row;  // NOLINT(*-member-init): written before it is read
  for (std::int64_t i = 0; i < tile.k_count; ++i) {
    convert(at(view, tile.k + i, tile.column), view.dtype, row.data(), Dtype::f32,
            static_cast<std::size_t>(tile.columns));
    scatter(row.data(), tile.columns, block.row(0) + i);
  }
}

void write_tile(Block<float>& block, const Tile& tile, const TensorView& out, WeightLayout layout) {
  if (layout == WeightLayout::out_in) {
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      convert(block.row(c), Dtype::f32, at(out, tile.column + c, tile.k), out.dtype,
              static_cast<std::size_t>(tile.k_count));
    }
    return;
  }
  std::array<float, kTileColumns> row;  // NOLINT(*-member-init): written before it is read
  for (std::int64_t i = 0; i < tile.k_count; ++i) {
    gather(block.row(0) + i, tile.columns, row.data());
    convert(row.data(), Dtype::f32, at(out, tile.k + i, tile.column), out.dtype,
            static_cast<std::size_t>(tile.columns));
  }
}

void read_values(const WeightView& packed, const Format& format, const Tile& tile,
                 Block<std::int8_t>& block) {
  const ConstTensorView& view = packed.view;
  if (packed.layout == WeightLayout::out_in) {
    const std::int64_t byte = format.row_bytes(tile.k);
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      const void* from = at(view, tile.column + c, byte);
      format.unpack(static_cast<const std::int8_t*>(from), tile.k_count, block.row(c));
    }
    return;
  }
  const std::int64_t byte = format.row_bytes(tile.column);
  std::array<std::int8_t, kTileColumns> row;  // NOLINT(*-member-init): written before it is read
  for (std::int64_t i = 0; i < tile.k_count; ++i) {
    const void* from = at(view, tile.k + i, byte);
    format.unpack(static_cast<const std::int8_t*>(from), tile.columns, row.data());
    scatter(row.data(), tile.columns, block.row(0) + i);
  }
}

}  // namespace plait::quant
