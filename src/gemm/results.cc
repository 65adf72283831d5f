#include "gemm/results.h"

#include <algorithm>

#include "base/default_floats.h"
#include "gemm/loops.h"
#include "tensor/stride.h"

namespace plait::gemm {
namespace {

Range moved(Range range, std::int64_t by) { return {range.begin + by, range.end + by}; }

}  // namespace

Tile Results::tile(std::int64_t panel, Range rows) const {
  const std::int64_t first = panel * kPanelColumns;
  return {.rows = rows,
          .columns = {std::max(first, task_.columns.begin),
                      std::min(first + kPanelColumns, task_.columns.end)}};
}

TileOut Results::straight(const Tile& tile) const {
  const bool sums_are_all = task_.bias == nullptr && !task_.call.accumulate &&
                            task_.depth.group == 0 && !has_scales() && task_.depth.k > 0;
  if (!kernel_.rounds() || !sums_are_all || size(tile.columns) != kPanelColumns) return {};
  const TensorView out = output_rows_of(tile).next();
  if (out.rows != size(tile.rows)) return {};
  return {.data = static_cast<std::byte*>(out.data),
          .row_stride = tensor::stride_bytes(out),
          .dtype = out.dtype};
}

void Results::finish(const Tile& tile, const float* sums) const {
  const Finish how = {.scales = scales_of(tile),
                      .bias = task_.bias == nullptr ? nullptr : task_.bias + tile.columns.begin,
                      .accumulate = task_.call.accumulate};
  sums += tile.columns.begin % kPanelColumns;
  OutputRows rows = output_rows_of(tile);
  for (std::int64_t done = 0; done < size(tile.rows);) {
    const TensorView out = rows.next();
    loops().finish(how, sums + done * kPanelColumns, out);
    done += out.rows;
  }
}

void Results::tell_of(const Tile& tile) const {
  if (!task_.call.on_tile) return;
  task_.call.on_tile(tile);
  // The caller's code may have set what the thread rounds by, or used what the kernel keeps in the
  // processor.
  base::set_default_floats();
  kernel_.begin();
}

// Rows and columns count from the window's first.
OutputRows Results::output_rows_of(const Tile& tile) const {
  return {task_.call,
          {.rows = moved(tile.rows, -task_.rows.begin),
           .columns = moved(tile.columns, -task_.columns.begin)}};
}

const float* Results::scales_of(const Tile& tile) const {
  if (!has_scales() || scales_leaves()) return nullptr;
  return packed_->scales(0, tile.columns.begin / kPanelColumns) +
         tile.columns.begin % kPanelColumns;
}

const float* Results::leaf_scales(std::int64_t panel) const {
  return has_scales() && scales_leaves() ? packed_->scales(0, panel) : nullptr;
}

bool Results::has_scales() const {
  return packed_ != nullptr && packed_->scheme() && task_.depth.group == 0;
}

}  // namespace plait::gemm
