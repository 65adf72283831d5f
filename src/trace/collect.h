// Turns the contents of the threads' rings into the records of a timeline: times on the common
// clock, and numbered labels.
#pragma once

#include <vector>

#include "trace/clock_line.h"
#include "trace/record.h"
#include "trace/ring.h"
#include "trace/stopwatch.h"

namespace plait::trace {

// Thread i's records come from contents[i]. The caller sets the rank.
RankRecords collect(const std::vector<Ring::Content>& contents, const Scale& scale,
                    const ClockLine& clock);

}  // namespace plait::trace
