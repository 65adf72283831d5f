// One timeline of all ranks of a communicator.
//
//   plait::Trace trace(place.rank);
//   plait::Communicator comm = plait::Communicator::connect({.trace = &trace});
//   ... work ...
//   plait::write_timeline("timeline.json", trace, comm);   // rank 0 writes what all recorded
//
// Ranks on one host share a clock. On several hosts, ranks ask rank 0 for the time several times
// and use the quickest answer. Their spans are thus aligned with rank 0's to within half a round
// trip, which the file gives as clock_uncertainty_ns. Clocks drift apart: if the records span more
// than a few seconds, also call align_clock() before the work.
#pragma once

#include <string>

#include "plait/communicator.h"
#include "plait/export.h"
#include "plait/trace.h"

namespace plait {

// Collective. Measures the offset of rank 0's clock from this rank's, and adds the measurement to
// the trace.
PLAIT_EXPORT void align_clock(Trace& trace, Communicator& comm);

// Collective; aligns the clocks first. Only rank 0 touches the file, and only rank 0 throws if the
// file can't be written.
PLAIT_EXPORT void write_timeline(const std::string& path, Trace& trace, Communicator& comm);

}  // namespace plait
