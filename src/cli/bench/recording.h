// Runs that are recorded for a timeline: of all ranks together, one after another.
//
//   Recording recording(comm);
//   recording.run("serial", [&] { serial.run(); });
//   recording.run("fused", [&] { fused.run(); });
//   const Recorded recorded = recording.collect();  // runs[0] is serial's
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "plait/communicator.h"
#include "plait/trace.h"
#include "trace/record.h"

namespace plait::cli {

// What all ranks have recorded, all on rank 0's clock.
struct Recorded {
  std::vector<std::vector<std::byte>> packs;  // as write_json() takes them
  std::vector<trace::RankRecords> ranks;      // the same to read
  // Of a few runs the one of median length, from the first rank's begin to the last one's end: one
  // that something else has disturbed is not what the plan does, and neither is the luckiest.
  std::vector<Interval> runs;
};

// Of the communicator's rank, while it lives.
class Recording {
 public:
  explicit Recording(Communicator& comm);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // Collective: all ranks begin together, a few times.
  void run(std::string_view name, const std::function<void()>& call);

  // Collective: on rank 0 all there is, on the others nothing. Once, in the end.
  Recorded collect();

 private:
  struct Run {
    Label label;
    Interval time;
  };

  Communicator& comm_;
  Trace trace_;
  std::vector<Run> runs_;
};

// Of packs whose flights in the compute lane are those runs.
Recorded recorded_of(std::vector<std::vector<std::byte>> packs);

}  // namespace plait::cli
