// Predicts how long a parallel linear layer takes on another machine, forward and backward.
// Modelled ranks run the layers of plait/linear.h, as they run operators (predict/operator.h).
#pragma once

#include <cstdint>

#include "plan/models.h"
#include "predict/operator.h"

namespace plait::predict {

struct LayerProblem {
  plan::LinearKind kind;
  std::int64_t rows;  // of all ranks together
  std::int64_t inputs;
  std::int64_t outputs;
  Dtype dtype = Dtype::bf16;
  Dtype wire = Dtype::bf16;
  bool sequence_parallel = true;
  bool recompute_all_gather = true;
  bool column_backward = false;
};

struct LayerTimes {
  base::Nanoseconds forward;
  base::Nanoseconds backward;  // gradients of input and weight

  base::Nanoseconds both() const { return forward + backward; }
};

LayerTimes predict(const Machine& machine, const LayerProblem& problem, const Plan& plan);

}  // namespace plait::predict
