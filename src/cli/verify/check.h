// One case on one rank: every plan against the serial one, bit for bit, and that one against sums
// in f64. Each runs twice, on two x.
#pragma once

#include <string>

#include "cli/verify/case.h"
#include "plait/communicator.h"

namespace plait::cli {

// What is wrong with the case on this rank; empty: nothing. Collective.
std::string failure_of(const VerifyCase& one, Communicator& comm);

}  // namespace plait::cli
