// Checks one layer on one rank, forward and backward. Every variant must equal the serial one bit
// for bit, and that one must be close to sums in f64.
#pragma once

#include <cstddef>
#include <functional>

#include "plait/communicator.h"
#include "verify/findings.h"
#include "verify/layer_case.h"

namespace plait::verify {

// The results of a micro-batch.
struct LayerResults {
  TensorView out;
  TensorView grad_x;
  TensorView grad_weight;
  TensorView grad_bias;
};

// Damages the results, for tests that check whether it is noticed. `variant`: 0 is the serial one,
// then those of the case; kOnOneRank is made by one rank that has the whole layer.
using SpoilLayer = std::function<void(std::size_t variant, const LayerResults& results)>;

// Collective.
Findings verify_case(const LayerCase& one, Communicator& comm, const SpoilLayer& spoil = {});

}  // namespace plait::verify
