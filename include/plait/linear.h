// The two linear layers of tensor parallelism, forward and backward, each with its communication
// hidden behind a product.
//
//   plait::ColumnParallelLinear up(
//       {.inputs = 4096, .outputs = 8192, .layout = WeightLayout::out_in}, comm);
//   up.forward({.x = x, .weight = w, .out = y});
//   up.backward({.x = x, .weight = w, .grad_out = dy, .grad_x = dx, .grad_weight = dw});
//
// A layer keeps sizes and settings, and nothing of what its calls are given: the weight may lie
// elsewhere in the next call, and the x of a backward may be another tensor than forward saw, with
// the same elements.
//
// The outputs of a column layer are shared out over the ranks, the inputs of a row layer: each rank
// has its share of the weight. With sequence parallelism the other side of the layer is cut in
// balanced shards of rows (see balanced_shard()); without, every rank has all rows.
//
//                     sequence parallel                      not
//   column forward    all_gather_matmul                      matmul
//     grad_x          product, its reduce-scatter beside     product, its all-reduce beside the
//                     the weight's gradient                  weight's gradient
//     grad_weight     x gathered again beside the product    of x
//                     of grad_x, or kept from forward
//   row forward       matmul_reduce_scatter                  matmul_all_reduce
//     grad_x          all_gather_matmul                      product
//     grad_weight     of what that has gathered              of grad_out
//
// The numbers are those of the operators (see ops.h): the same bits whatever the plan, whatever is
// kept or gathered again, wherever a reduction runs, and however a rank's threads round and treat
// denormals. Gradients of weight and bias are sums over rows in f32, rounded once, to what they
// accumulate into.
//
// All ranks make the same calls, with the same gradients asked for. What is refused has written
// nothing, but a forward forgets what its state has first; after a lost peer outputs are undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "plait/buffer.h"
#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/ops.h"
#include "plait/settings.h"
#include "plait/tensor_view.h"

namespace plait {

// What a layer is made for. Each call brings weights of these sizes and kinds.
struct LinearDesc {
  std::int64_t inputs;   // of this rank's share of the weight
  std::int64_t outputs;  // the same
  WeightLayout layout;   // in which grad_weight lies

  WeightKind weight = {};  // plait::Weight(w).kind()

  // A plain weight serves both directions. A packed one, which may be quantised, serves one: grad_x
  // then takes a packed weight of this kind, whose inputs and outputs are exchanged.
  std::optional<WeightKind> turned = {};
};

struct LinearOptions {
  bool sequence_parallel = true;

  // Column, sequence parallel: backward gathers x again. Otherwise forward's is kept in its state.
  bool recompute_all_gather = true;

  // Column: grad_x is made by an operator in a plan of its own, and not reduced beside the weight's
  // gradient. So it is anyway where there is no such gradient.
  bool column_backward = false;

  // What an operator gathers and a gradient's product then reads, grad_out of a row layer and x
  // where it is kept, lies in rows of whole cache lines. No bit depends on it.
  bool aligned_packing = true;

  // Wire, plan or plans, threads, backend: nothing of one call, and no shares.
  OpOptions operators = {};
};

// The options that settings.h describes, without sequence parallelism. `plans` is asked as long as
// there are layers: SettingsPlans of the same settings, or a source that goes before it.
PLAIT_EXPORT LinearOptions linear_options(const Settings& settings, const PlanSource& plans);

// What a backward may take over from its forward: the gathered x, where recompute_all_gather is
// off, and the number of rows, which is compared. Any number may be in flight; used again, a state
// keeps its memory. A backward without one gathers what it needs.
class LinearState {
 public:
  // 0, or where the gathered x is kept as much as the largest so far, with the gaps in it.
  std::size_t held_bytes() const { return gathered_.bytes(); }

 private:
  friend class Linear;

  Buffer gathered_;
  ConstTensorView all_;
  std::int64_t rows_ = -1;  // of all ranks; -1: there was no forward
  bool keeps_ = false;      // all rows of x, as all_, in gathered_
};

struct LinearForward {
  ConstTensorView x;
  Weight weight;
  TensorView out;

  // [1, outputs]: this rank's of a column layer, all of a row layer. None: a caller that skips the
  // bias adds it later.
  ConstTensorView bias = {};
};

// A gradient that is left empty is not asked for. A rank that has no rows, or no columns, asks with
// the other size alone. A backward may come in parts, grad_x first and grad_weight later: each part
// that needs what other ranks have gathers it anew.
struct LinearBackward {
  ConstTensorView x = {};             // for grad_weight, unless the state has kept all of it
  std::optional<Weight> weight = {};  // for grad_x: plain, as forward has it
  std::optional<Weight> turned = {};  // for grad_x in place of `weight`, as LinearDesc says
  ConstTensorView grad_out;
  TensorView grad_x = {};       // none: the input needs no gradient
  TensorView grad_weight = {};  // in the layer's layout; none: the weight is frozen
  TensorView grad_bias = {};    // [1, outputs]
  bool accumulate = false;      // adds to what grad_weight and grad_bias hold

  // Rows of all ranks together. A row layer with sequence parallelism needs it where the call has
  // neither x, nor grad_x, nor a state; elsewhere it is compared with their rows.
  std::int64_t rows = -1;
};

class Linear;

class PLAIT_EXPORT ColumnParallelLinear {
 public:
  // Collective: ranks tell one another their shares. The communicator must outlive the layer.
  ColumnParallelLinear(const LinearDesc& desc, Communicator& comm,
                       const LinearOptions& options = {});
  ColumnParallelLinear(ColumnParallelLinear&&) noexcept;
  ColumnParallelLinear& operator=(ColumnParallelLinear&&) noexcept;
  ~ColumnParallelLinear();

  // Collective, one layer of a communicator at a time. With or without a state on all ranks alike.
  void forward(const LinearForward& call, LinearState* state = nullptr);
  void backward(const LinearBackward& call, const LinearState* state = nullptr);

 private:
  std::unique_ptr<Linear> linear_;
};

class PLAIT_EXPORT RowParallelLinear {
 public:
  RowParallelLinear(const LinearDesc& desc, Communicator& comm, const LinearOptions& options = {});
  RowParallelLinear(RowParallelLinear&&) noexcept;
  RowParallelLinear& operator=(RowParallelLinear&&) noexcept;
  ~RowParallelLinear();

  void forward(const LinearForward& call, LinearState* state = nullptr);
  void backward(const LinearBackward& call, const LinearState* state = nullptr);

 private:
  std::unique_ptr<Linear> linear_;
};

// What the layers of a communicator hold together, in bytes of this rank's memory. Layers of the
// same sizes share all of it, however many they are; of different sizes what is prepared for each
// is kept within limits, and the rest grows with the largest.
struct LinearMemory {
  std::size_t mailboxes;
  std::size_t operators;  // prepared for the next call of their kind: at most 64 kinds, 1 GiB
  std::size_t workspace;  // gathered rows, partial sums, and products (at most 32, 1 GiB)
};
PLAIT_EXPORT LinearMemory linear_memory(Communicator& comm);

}  // namespace plait
