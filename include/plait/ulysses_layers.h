// The two linear layers around an attention whose ranks share rows outside and heads inside,
// forward and backward, each with its all-to-all hidden behind a product.
//
//   plait::UlyssesQKV qkv({.inputs = 2048, .outputs = 5120, .layout = WeightLayout::out_in,
//                          .columns = qkv_columns(heads, comm.world())}, comm);
//   qkv.forward({.x = x, .weight = w, .out = own_heads});
//   qkv.backward({.x = x, .weight = w, .grad_out = grad, .grad_x = dx, .grad_weight = dw});
//
// Every rank has the whole weight. A layer keeps sizes and settings, but no operands of its calls.
//
//                   UlyssesQKV                      UlyssesOutput
//   x               own rows [m_r, inputs]          [m, inputs of own heads]
//   out             [m, outputs of own heads]       own rows [m_r, outputs]
//   forward         matmul_all_to_all               all_to_all_matmul
//   grad_x          all_to_all_matmul               matmul_all_to_all
//   grad_weight     of the own rows that the operator has gathered, on each rank
//
// out and grad_x have the bits of one rank. Gradients of weight and bias are sums over this rank's
// rows in f32, rounded once: add them up over the ranks, as a trainer of data-parallel ranks does.
//
// All ranks make the same calls, and ask for the same gradients. If operands are refused, nothing
// has been written.
#pragma once

#include <cstdint>

#include "plait/buffer.h"
#include "plait/export.h"
#include "plait/linear.h"
#include "plait/ulysses.h"

namespace plait {

struct UlyssesDesc {
  std::int64_t inputs;   // of the whole weight
  std::int64_t outputs;  // the same
  WeightLayout layout;   // of grad_weight
  ColumnGroups columns;  // of the outputs of UlyssesQKV, or of the inputs of UlyssesOutput
};

// The own rows of x that UlyssesOutput's forward has gathered, for the gradient of the weight. A
// state that is used again keeps its memory. Without a state, backward gathers them again.
class UlyssesState {
 public:
  std::size_t held_bytes() const { return memory_.bytes(); }

 private:
  friend class UlyssesOutput;

  Buffer memory_;
  ConstTensorView rows_;
};

// The options of a layer are those of its operators without bias, gathered and poll. In
// LinearBackward, `rows` is not used: sizes follow from the operands.
class PLAIT_EXPORT UlyssesQKV {
 public:
  // The communicator must outlive the layer.
  UlyssesQKV(UlyssesDesc desc, Communicator& comm, UlyssesOptions options = {});

  // Collective.
  void forward(const LinearForward& call);
  void backward(const LinearBackward& call);

 private:
  UlyssesDesc desc_;
  Communicator* comm_;
  UlyssesOptions options_;
};

class PLAIT_EXPORT UlyssesOutput {
 public:
  UlyssesOutput(UlyssesDesc desc, Communicator& comm, UlyssesOptions options = {});

  // Collective. Either all ranks pass a state, or none does. Backward needs x for grad_weight if it
  // has no state.
  void forward(const LinearForward& call, UlyssesState* state = nullptr);
  void backward(const LinearBackward& call, const UlyssesState* state = nullptr);

 private:
  UlyssesDesc desc_;
  Communicator* comm_;
  UlyssesOptions options_;
};

}  // namespace plait
