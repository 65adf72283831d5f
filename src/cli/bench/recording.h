// Runs that are recorded for a timeline: of all ranks together, one after another.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/communicator.h"
#include "plait/trace.h"
#include "trace/record.h"

namespace plait::cli {

// Of the communicator's rank, while it lives.
class Recording {
 public:
  explicit Recording(Communicator& comm);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // Collective. Of a few runs the one of median length, from the first rank's begin to the last
  // one's end: one that something else has disturbed is not what the plan does, and neither is the
  // luckiest.
  Interval run(std::string_view name, const std::function<void()>& call);

  Trace& trace() { return trace_; }

  // Collective: every rank's records; on rank 0 alone.
  std::vector<trace::RankRecords> collect();

 private:
  Communicator& comm_;
  Trace trace_;
};

}  // namespace plait::cli
