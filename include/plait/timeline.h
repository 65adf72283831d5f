// One timeline of all ranks of a communicator.
//
//   plait::Trace trace(place.rank);
//   plait::Communicator comm = plait::Communicator::connect({.trace = &trace});
//   ... work ...
//   plait::write_timeline("timeline.json", trace, comm);   // rank 0 writes what all recorded
//
// Ranks of one host share a clock. Ranks of several ask rank 0 for the time and take the quickest
// answer, so that their spans lie beside rank 0's to within half a round trip, which the file says
// as clock_uncertainty_ns. Clocks drift apart: where records span more than seconds, also call
// align_clock() before the work.
#pragma once

#include <string>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/trace.h"

namespace plait {

// Collective. Measures how far rank 0's clock is from this rank's, and adds that to the trace.
PLAIT_EXPORT void align_clock(Trace& trace, Communicator& comm);

// Collective, and aligns the clocks first. Only rank 0 touches the file, and only it throws where
// that can't be written.
PLAIT_EXPORT void write_timeline(const std::string& path, Trace& trace, Communicator& comm);

}  // namespace plait
