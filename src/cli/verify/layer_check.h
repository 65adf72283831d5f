// One layer on one rank, forward and backward: every variant against the serial one, bit for bit,
// and that one against sums in f64.
#pragma once

#include <string>

#include "cli/verify/layer_case.h"
#include "plait/communicator.h"

namespace plait::cli {

// What is wrong with the case on this rank; empty: nothing. Collective.
std::string failure_of(const LayerCase& one, Communicator& comm);

}  // namespace plait::cli
