// Timelines of what plait bench OPERATOR has measured.
#pragma once

#include "cli/bench/op_measure.h"
#include "cli/bench/recording.h"

namespace plait::cli {

// Collective: runs every plan once more, where the options name timelines. On rank 0 what was
// recorded, on the others nothing.
Recorded record(const OpBenchOptions& options, const OpMeasurement& result, Communicator& comm);

// The files that the options name.
void write_timelines(const OpBenchOptions& options, const OpMeasurement& result,
                     const Recorded& recorded);

}  // namespace plait::cli
