// Checks one case on one rank. Every plan must equal the serial one bit for bit. The serial one
// must equal what the rank computes alone, and be close to sums in f64. Each plan runs twice, with
// two x.
#pragma once

#include <cstddef>
#include <functional>

#include "plait/communicator.h"
#include "verify/case.h"
#include "verify/findings.h"

namespace plait::verify {

// Damages the results of a run, for tests that check whether it is noticed. `plan`: 0 is the serial
// plan, then those of the case; kOnOneRank is what one rank makes that has all k.
using Spoil =
    std::function<void(std::size_t plan, const TensorView& out, const TensorView& gathered)>;

// Collective.
Findings verify_case(const VerifyCase& one, Communicator& comm, const Spoil& spoil = {});

}  // namespace plait::verify
