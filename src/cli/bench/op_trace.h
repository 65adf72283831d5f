// Timelines of what plait bench OPERATOR has measured.
#pragma once

#include "cli/bench/op_measure.h"

namespace plait::cli {

// Collective: runs every plan once more, and rank 0 writes the files that the options name.
void trace(const OpBenchOptions& options, const OpMeasurement& result, Communicator& comm);

}  // namespace plait::cli
