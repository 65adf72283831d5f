// A call whose ranges and views have been checked.
#pragma once

#include <cstdint>

#include "gemm/depth.h"
#include "gemm/leaves.h"
#include "gemm/panel_cache.h"
#include "gemm/rows.h"
#include "plait/gemm.h"

namespace plait::gemm {

inline std::int64_t size(Range range) { return range.end - range.begin; }

struct Task {
  const GemmCall& call;
  Range rows;
  Range columns;
  Depth depth;
  Leaves leaves;
  const Rows* packed_rows = nullptr;  // all of X; nullptr: they are packed as they are needed
  const float* bias = nullptr;        // of all columns; nullptr: none
  PanelCache::State* kept =
      nullptr;  // of a plain weight; nullptr: its panels are packed for this run
  int threads = 1;
};

}  // namespace plait::gemm
