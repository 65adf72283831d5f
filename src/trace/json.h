// Writes the timeline in Chrome's trace event format, which Perfetto reads too. A rank is a
// process, and a lane of a thread is a thread:
//
//   span    "X"         one per record; nested or disjoint within a track
//   flight  "b", "e"    an asynchronous pair, since flights of a lane may overlap; its id is the
//                       rank's own
//   mark    "i"         on its track
//   count   "C"         on its rank
//   names   "M"
#pragma once

#include <string>
#include <vector>

#include "trace/record.h"

namespace plait::trace {

void write_json(const std::string& path, const std::vector<RankRecords>& ranks);

}  // namespace plait::trace
