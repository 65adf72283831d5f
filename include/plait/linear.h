// The two linear layers of tensor parallelism, forward and backward, each with its communication
// hidden behind a product.
//
//   plait::ColumnParallelLinear up(
//       {.inputs = 4096, .outputs = 8192, .layout = WeightLayout::out_in}, comm);
//   up.forward({.x = x, .weight = w, .out = y});
//   up.backward({.x = x, .weight = w, .grad_out = dy, .grad_x = dx, .grad_weight = dw});
//
// A layer keeps sizes and settings, but no operands of its calls. The weight may have another
// address in the next call, and the x of backward may be another tensor than that of forward, with
// the same elements.
//
// A column layer's outputs are sharded over the ranks, and a row layer's inputs; each rank has its
// share of the weight. With sequence parallelism the other side of the layer is cut into balanced
// shards of rows (see balanced_shard()). Without it, every rank has all rows.
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
// Layers give the bits of the operators (see ops.h). These don't depend on the plan, on whether x
// is kept or gathered again, on where a reduction runs, or on a thread's mode of rounding and
// denormals. Gradients of weight and bias are sums over rows in f32, and are rounded once, to the
// dtype that they are written or added to. sum_tree(OpDesc, world, wire) says which tree
// adds up a row layer's output and a column layer's grad_x.
//
// All ranks make the same calls, and ask for the same gradients. A refused call has written
// nothing, except that forward first clears its state. After a lost peer outputs are undefined.
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

// The description of a layer. Each call passes weights of these sizes and kinds.
struct LinearDesc {
  std::int64_t inputs;   // of this rank's share of the weight
  std::int64_t outputs;  // the same
  WeightLayout layout;   // of grad_weight

  WeightKind weight = {};  // plait::Weight(w).kind()

  // A plain weight is enough for both directions. A packed weight, which may be quantised, is
  // enough for one: for grad_x, backward then takes a packed weight of this kind, whose inputs and
  // outputs are exchanged.
  std::optional<WeightKind> turned = {};
};

struct LinearOptions {
  bool sequence_parallel = true;

  // Column, sequence parallel: backward gathers x again. If false, forward keeps the gathered x in
  // its state.
  bool recompute_all_gather = true;

  // Column: an operator with its own plan computes grad_x, which is then not reduced beside the
  // weight's gradient. If that gradient is not asked for, or the wire is s8, this is always so.
  bool column_backward = false;

  // Rows that an operator gathers for a gradient's product (grad_out of a row layer, and x if it is
  // kept) take whole cache lines. No bit depends on it.
  bool aligned_packing = true;

  // Wire, plan or plans, threads, backend. Operands of a single call are refused, and so are
  // `shares` and `whole_size`.
  OpOptions operators = {};
};

// The options that settings.h describes, without sequence parallelism. `plans` must exist as long
// as the layers: SettingsPlans of the same settings, or a source that takes precedence over it.
PLAIT_EXPORT LinearOptions linear_options(const Settings& settings, const PlanSource& plans);

// Values that backward takes over from its forward: the gathered x, if recompute_all_gather is off,
// and the number of rows, which backward compares. Any number of states may be in use. A state that
// is used again keeps its memory. Without a state, backward gathers the rows that it needs.
class LinearState {
 public:
  // 0, or, if the gathered x is kept, the bytes of the largest so far, with the gaps in it.
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

  // [1, outputs]: in a column layer this rank's, in a row layer all. None: the caller adds the bias
  // later, or has none.
  ConstTensorView bias = {};
};

// A gradient whose view is empty is not computed. A rank that has no rows, or no columns, asks for
// it by giving the other size. Backward may be called in parts, first for grad_x and later for
// grad_weight. Each part gathers the rows of other ranks again if it needs them.
struct LinearBackward {
  ConstTensorView x = {};             // for grad_weight, unless the state has all of it
  std::optional<Weight> weight = {};  // for grad_x: plain, as forward has it
  std::optional<Weight> turned = {};  // for grad_x in place of `weight`, as LinearDesc says
  ConstTensorView grad_out;
  TensorView grad_x = {};       // none: the input needs no gradient
  TensorView grad_weight = {};  // in the layer's layout; none: the weight is frozen
  TensorView grad_bias = {};    // [1, outputs]
  bool accumulate = false;      // adds to what grad_weight and grad_bias hold

  // Rows of all ranks together. A row layer with sequence parallelism needs it if the call has
  // neither x, nor grad_x, nor a state. Otherwise it is compared with their rows.
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

  // Collective, one layer of a communicator at a time. Either all ranks pass a state, or none does.
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

// The memory that the layers of a communicator hold together, in bytes of this rank. Any number of
// layers of the same sizes share all of it. For layers of different sizes, prepared operators are
// kept within limits, and the rest grows with the largest layer.
struct LinearMemory {
  std::size_t mailboxes;
  std::size_t operators;  // prepared for the next call of their kind: at most 64 kinds, 1 GiB
  std::size_t workspace;  // gathered rows, partial sums, and products (at most 32, 1 GiB)
};
PLAIT_EXPORT LinearMemory linear_memory(Communicator& comm);

}  // namespace plait
