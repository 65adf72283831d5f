// An operator as one puts it together without plait: oneDNN's product with the weight in the layout
// that it asks for, and MPI's collective after it or before it. Partial sums are f32, as plait's.
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
  ConstTensorView x;       // what this rank has of it
  ConstTensorView weight;  // [n, k] of this rank
  TensorView out;
};

// Throws where nobody would put it together so.
void check_has_rival(Operator op);

// Why the rival has no such product on this processor, in words; empty: it has one. Partial sums of
// X and a weight of a dtype are f32, other products are of their dtype.
std::string refusal_of_rival(Operator op, Dtype dtype);

// What runs it once, on all ranks together. Borrows the problem's matrices.
std::function<void()> make_rival(const RivalProblem& problem, const Communicator& comm);

// "oneDNN 2.6.3, Open MPI v4.1.4"
std::string rival_name();

}  // namespace plait::bench
