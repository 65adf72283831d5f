// Writes a product's sums to the output, tile by tile, and applies scales and bias.
#pragma once

#include "gemm/kernel.h"
#include "gemm/output_rows.h"
#include "gemm/task.h"

namespace plait::gemm {

class Results {
 public:
  // `packed` is the weight, unless it is a view.
  Results(const Task& task, const TileKernel& kernel, const PackedWeight* packed)
      : task_(task), kernel_(kernel), packed_(packed) {}

  // The part of a panel that the caller asked for.
  Tile tile(std::int64_t panel, Range rows) const;

  // The place to which a kernel may write the tile itself, if it may: whole rows of the panel that
  // only have to be rounded, all of them in one matrix.
  TileOut straight(const Tile& tile) const;

  // `sums` begin with the panel's first column.
  void finish(const Tile& tile, const float* sums) const;

  // The factors of each leaf of a panel when it is complete; nullptr: none.
  const float* leaf_scales(std::int64_t panel) const;

  // Calls the hook.
  void tell_of(const Tile& tile) const;

 private:
  OutputRows output_rows_of(const Tile& tile) const;
  // The scales of a whole sum; nullptr: 1, or its leaves have been scaled. A single leaf is scaled
  // at the end, where it costs nothing.
  const float* scales_of(const Tile& tile) const;
  bool has_scales() const;  // and none per group
  bool scales_leaves() const { return task_.leaves.count() > 1; }

  const Task& task_;
  const TileKernel& kernel_;
  const PackedWeight* packed_;
};

}  // namespace plait::gemm
