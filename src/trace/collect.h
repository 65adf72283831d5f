// From what threads left in their rings to what a timeline needs: times on the common clock, and
// labels by number.
#pragma once

#include <vector>

#include "base/clock.h"
#include "trace/record.h"
#include "trace/ring.h"
#include "trace/stopwatch.h"

namespace plait::trace {

// Thread i's records come from contents[i]. The rank is left to the caller.
RankRecords collect(const std::vector<Ring::Content>& contents, const Scale& scale,
                    base::Nanoseconds clock_offset);

}  // namespace plait::trace
