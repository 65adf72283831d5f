// Records runs of all ranks for a timeline, one run after another.
//
//   Recording recording(comm);
//   recording.run("serial", [&] { serial.run(); });
//   recording.run("fused", [&] { fused.run(); });
//   const Recorded recorded = recording.collect();  // runs[0] is serial's
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plait/communicator.h"
#include "plait/trace.h"
#include "trace/record.h"

namespace plait::measure {

// The records of all ranks, on rank 0's clock.
struct Recorded {
  std::vector<std::vector<std::byte>> packs;  // for write_json()
  std::vector<trace::RankRecords> ranks;      // the same records, unpacked
  // For each name, one of several runs: that of median length, from the first rank's begin to the
  // last rank's end. The longest may have been disturbed, and the shortest may have been lucky.
  std::vector<TimeInterval> runs;
  std::vector<std::string> gaps;  // a sentence about each rank that lacks records
  // of other hosts' clocks beside rank 0's
  base::Nanoseconds clock_uncertainty = 0;
};

// Records on the communicator's rank while it lives.
class Recording {
 public:
  explicit Recording(Communicator& comm);  // collective
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // Collective: all ranks begin together, several times.
  void run(std::string_view name, const std::function<void()>& call);

  // Collective: returns all records on rank 0, and nothing on the others. Call it once, at the end.
  Recorded collect();

 private:
  struct Run {
    Label label;
    TimeInterval time;
  };

  Communicator& comm_;
  Trace trace_;
  std::vector<Run> runs_;
};

// Reads packs in which the flights in the compute lane are the runs.
Recorded recorded_of(std::vector<std::vector<std::byte>> packs);

}  // namespace plait::measure
