// An operator as in a program without plait: oneDNN's product with the weight in its preferred
// layout, and MPI's collective before or after it. Partial sums are f32, like plait's.
#pragma once

#include <functional>
#include <string>

#include "plait/buffer.h"
#include "plait/communicator.h"
#include "plait/operator.h"

namespace plait::bench {

struct RivalProblem {
  Operator op;
  std::int64_t m;          // of all ranks together
  ConstTensorView x;       // this rank's part of X
  ConstTensorView weight;  // [n, k] of this rank
  TensorView out;
};

// Throws if the operator can't reasonably be composed like this.
void check_has_rival(Operator op);

// Why the rival has no such product on this processor; empty: it has one. Partial sums are f32;
// other results have the operands' dtype.
std::string refusal_of_rival(Operator op, Dtype dtype);

// Returns a function that runs it once, on all ranks together. It borrows the problem's matrices.
std::function<void()> make_rival(const RivalProblem& problem, const Communicator& comm);

// "oneDNN 2.6.3, Open MPI v4.1.4"
std::string rival_name();

}  // namespace plait::bench
