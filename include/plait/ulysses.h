// Sequence parallelism by all-to-all, beside the product before or after it: own rows of all heads
// become all rows of own heads, and go back.
//
//   const plait::Heads heads = {.heads = 32, .kv_heads = 4, .size = 128};
//   plait::matmul_all_to_all(x, w_qkv, qkv_columns(heads, P), qkv, comm);   // qkv: all rows
//   attend(qkv, attended);                                                  // of own heads
//   plait::all_to_all_matmul(attended, w, head_columns(heads, P), y, comm); // y: own rows
//
// There are P ranks, and this one is r. Each has the whole weight. Rows are cut into balanced
// shards (see balanced_shard()), and a group of columns belongs to each rank.
//
//   matmul_all_to_all   X own rows [m_r, k]   W [k, n]   out [m, n_r]: own columns of X·W
//   all_to_all_matmul   X [m, k_r]            W [k, n]   out own rows [m_r, n]
//
// all_to_all_matmul: the columns of X are this rank's group of all k; `gathered` takes X's own rows
// with all k. Each operator multiplies the gradient of the other: the same groups, and the weight
// turned. For the weight's gradient each rank has its own rows of both factors.
//
// No sum passes from rank to rank: each element has the bits of one rank's product, on any number
// of ranks, in every plan and run, over every transport, and with any number of threads. If ranks
// share columns of X, these are added up in f32, in the order of ranks, and rounded once; the
// product is then one rank's product of such an X.
//
// Every rank of the communicator makes the call, with the same m, n, k, groups, dtypes and plan. If
// operands are refused (Error{invalid_argument}), nothing has been written. If ranks fail together
// (peer_lost, mismatch, timeout, ...), `out` and `gathered` are undefined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/ops.h"
#include "plait/plan.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

struct ColumnRange {
  std::int64_t first;
  std::int64_t count;

  bool operator==(const ColumnRange&) const = default;
};

// The columns of each rank, in the order in which they lie there. Each column is in one group at
// least, and at most once in each. If ranks share it, matmul_all_to_all gives each of them a copy,
// and all_to_all_matmul adds up what they bring. A group may be empty.
using ColumnGroups = std::vector<std::vector<ColumnRange>>;

// Equal shares of columns, one after another; the first ranks have one more where it is uneven.
PLAIT_EXPORT ColumnGroups equal_columns(std::int64_t columns, int world);

// The heads of an attention layer. Each of the kv heads serves heads / kv_heads of the others.
struct Heads {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t size;  // columns of a head

  // The weight of q, k and v: [all q | all k | all v], or for each kv head [its q | k | v].
  bool interleaved = false;
};

// Balanced shares of the kv heads, each with the heads that it serves. If there are fewer kv heads
// than ranks, as many ranks share each: they have a copy of it, and balanced shares of its heads.
PLAIT_EXPORT ColumnGroups qkv_columns(const Heads& heads, int world);
// The columns of the same ranks' heads alone, which the product after the attention reads.
PLAIT_EXPORT ColumnGroups head_columns(const Heads& heads, int world);

// All ranks give the same plan.
struct UlyssesOptions {
  std::optional<Plan> plan = {};      // empty: that of `plans`; without them fused
  const PlanSource* plans = nullptr;  // asked by find(), and told by took() how long it took
  int threads = 0;                    // 0: as many as OpenMP would use
  std::string backend = {};           // of the product; empty: the best
  ConstTensorView bias = {};          // [1, n], the same on all ranks
  TensorView gathered = {};           // all_to_all_matmul: receives own rows of X [m_r, k]
  PollHook poll = {};                 // see plait/ops.h
};

// Blocking. The communicator keeps what the last calls of up to 16 kinds have prepared.
PLAIT_EXPORT void matmul_all_to_all(const ConstTensorView& x, const Weight& weight,
                                    const ColumnGroups& columns, const TensorView& out,
                                    Communicator& comm, const UlyssesOptions& options = {});
PLAIT_EXPORT void all_to_all_matmul(const ConstTensorView& x, const Weight& weight,
                                    const ColumnGroups& columns, const TensorView& out,
                                    Communicator& comm, const UlyssesOptions& options = {});

}  // namespace plait
