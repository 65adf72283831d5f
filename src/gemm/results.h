// Where a product's sums go, tile by tile, and what becomes of them on the way.
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

  // What of a panel was asked for.
  Tile tile(std::int64_t panel, Range rows) const;

  // Where a kernel may write the tile itself, if it may: whole rows of the panel that only have to
  // be rounded, all of them in one matrix.
  TileOut straight(const Tile& tile) const;

  // `sums` begin with the panel's first column.
  void finish(const Tile& tile, const float* sums) const;

  // What each leaf of a panel is multiplied by when it is complete; nullptr: nothing.
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
