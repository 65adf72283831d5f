// Records timelines of the plans that plait bench OPERATOR has measured.
#pragma once

#include "cli/bench/op_measure.h"
#include "cli/bench/recording.h"

namespace plait::cli {

// Collective. If the options request timelines, runs every plan once more. Returns the records on
// rank 0, and nothing on the others.
Recorded record(const OpBenchOptions& options, const OpMeasurement& result, Communicator& comm);

// Writes the files that the options name.
void write_timelines(const OpBenchOptions& options, const OpMeasurement& result,
                     const Recorded& recorded);

}  // namespace plait::cli
