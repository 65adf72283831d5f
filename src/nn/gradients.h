// The gradients of weight and bias: sums over rows, with no communication of their own.
#pragma once

#include "base/function_ref.h"
#include "comm/core/group.h"
#include "nn/workspace.h"
#include "plait/tensor_view.h"
#include "plait/trace.h"
#include "plait/weight.h"

namespace plait::nn {

struct WeightGradient {
  ConstTensorView grad_out;  // [rows, outputs]
  ConstTensorView x;         // [rows, inputs]
  TensorView to;             // lies as the weight does
  WeightLayout layout;
  bool accumulate;
};

// Called now and then while it multiplies, by the thread that made the call.
using PollStep = base::FunctionRef<void()>;

struct GradientSpec {
  GemmOptions gemm;
  const comm::Group& group;  // has their trace and executor; peers see that this rank multiplies
};

void run(const WeightGradient& gradient, Workspace& workspace, const GradientSpec& spec,
         PollStep poll_step);

// to[j] (+)= grad_out[0, j] + grad_out[1, j] + ..., in f32 and in that order, rounded once.
void sum_rows(const ConstTensorView& grad_out, const TensorView& to, bool accumulate, int threads);

}  // namespace plait::nn
