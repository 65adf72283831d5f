// Rows on their way between ranks, beside a product or alone.
#pragma once

#include "plait/collectives.h"
#include "plait/gemm.h"
#include "plait/tensor_view.h"

namespace plait::nn {

// This rank's shard of rows.
Range shard_of(std::int64_t rows, const Communicator& comm);

// How many elements rows of so many are to be apart, in whole cache lines: bf16, 100 → 128. Rows of
// whole pages get no line more: what a product reads across rows is packed first, and the line was
// measured to bring a weight's gradient 0.2 % on average (docs/lab/layers.md).
std::int64_t spaced(Dtype dtype, std::int64_t cols);

// Each rank's shard to `all`, which is contiguous. What is not contiguous itself is copied first.
Pending start_gathering(const ConstTensorView& own, const TensorView& all, Communicator& comm);

// The sum of `partial`, which is contiguous, over ranks: this rank's shard of it, or all of it.
enum class Sum { shard, all };
Pending start_summing(const ConstTensorView& partial, const TensorView& to, Sum sum,
                      Communicator& comm);

}  // namespace plait::nn
