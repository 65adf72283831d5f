// Columns that ranks share, brought straight to their places in a matrix that every rank gets.
//
//   plait::matmul_all_gather_columns(x, w, logits, comm);   // logits [m, the sum of all n_r]
//
// All ranks have the same x [m, k], and each has a weight [k, n_r] for its own columns: an output
// layer that is gathered. The product writes this rank's columns to their place, a window at a
// time, and windows that are done travel while the next one is multiplied. Nothing is transposed
// or copied into rows of one rank first. The bits are those of matmul() on one rank.
//
//   plait::all_gather_columns_matmul(x, w, gathered, out, comm);   // x [m, k_r], out [m, n]
//
// Each rank has some columns of x, and all are gathered before the product, as in layouts where
// both dimensions of x are shared. Weights and outputs may differ from rank to rank. While rows are
// multiplied, the next ones arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/plan.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

// The number of each rank's columns, the same on all ranks. Empty means balanced: the first
// (columns mod world) ranks have one more.
using ColumnCounts = std::span<const std::int64_t>;

// Collective. `mine` may be this rank's place in `all`; otherwise they must not overlap. Any dtype;
// both may have gaps between rows.
PLAIT_EXPORT void all_gather_columns(const ConstTensorView& mine, const TensorView& all,
                                     Communicator& comm, ColumnCounts counts = {});

struct ColumnsOptions {
  ColumnCounts counts = {};
  ConstTensorView bias = {};  // [1, n_r], of this rank's columns
  int threads = 0;            // 0: as many as OpenMP would use
  std::string backend = {};   // of the product; empty: the best

  // A part or a chunk is multiplied at once: some of this rank's columns if the product comes
  // first, else some rows, which are gathered together. All ranks give the same plan. Axes are
  // natural.
  std::optional<Plan> plan = {};  // empty: that of `plans`; without them fused
  const PlanSource* plans = nullptr;
};

// Collective. The weight may be packed and quantised.
PLAIT_EXPORT void matmul_all_gather_columns(const ConstTensorView& x, const Weight& weight,
                                            const TensorView& out, Communicator& comm,
                                            const ColumnsOptions& options = {});

// Collective. `gathered` [m, k] receives x of all ranks, which the weight's gradient needs; `x` may
// be this rank's place in it. options.counts are those of k, and options.bias is [1, n].
PLAIT_EXPORT void all_gather_columns_matmul(const ConstTensorView& x, const Weight& weight,
                                            const TensorView& gathered, const TensorView& out,
                                            Communicator& comm, const ColumnsOptions& options = {});

}  // namespace plait
