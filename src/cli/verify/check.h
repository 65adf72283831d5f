// One case on one rank: every plan against the serial one, bit for bit; that one against what the
// rank makes alone, bit for bit too, and against sums in f64. Each runs twice, on two x.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "cli/verify/case.h"
#include "plait/communicator.h"

namespace plait::cli {

// Spoils what a run has left, for tests that see whether it is noticed. `plan`: 0 is the serial
// one, then come the case's.
using Spoil =
    std::function<void(std::size_t plan, const TensorView& out, const TensorView& gathered)>;

// What is wrong with the case on this rank; empty: nothing. Collective.
std::string failure_of(const VerifyCase& one, Communicator& comm, const Spoil& spoil = {});

}  // namespace plait::cli
