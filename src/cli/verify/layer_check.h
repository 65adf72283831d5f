// One layer on one rank, forward and backward: every variant against the serial one, bit for bit,
// and that one against sums in f64.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "cli/verify/layer_case.h"
#include "plait/communicator.h"

namespace plait::cli {

// What a micro-batch has left.
struct LayerResults {
  TensorView out;
  TensorView grad_x;
  TensorView grad_weight;
  TensorView grad_bias;
};

// Spoils it, for tests that see whether it is noticed. `variant`: 0 is the serial one, then come
// the case's.
using SpoilLayer = std::function<void(std::size_t variant, const LayerResults& results)>;

// What is wrong with the case on this rank; empty: nothing. Collective.
std::string failure_of(const LayerCase& one, Communicator& comm, const SpoilLayer& spoil = {});

}  // namespace plait::cli
