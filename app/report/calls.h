// Analyses how the calls of operators spent their time, from the records of a rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "report/timeline.h"
#include "trace/record.h"

namespace plait::report {

// All calls of one problem on one rank; times in nanoseconds, summed over the calls. Besides
// operators, there are "weight gradient" and collectives by their names. The time of a started
// collective is the time from its start to its end.
struct Calls {
  std::string problem;  // "op=matmul_all_reduce m=..." with the rank's share of n or k
  std::int64_t count = 0;
  std::int64_t time = 0;
  std::int64_t multiplying = 0;    // on at least one thread
  std::int64_t communicating = 0;  // the rank itself copies and sums
  std::int64_t waiting = 0;

  // The time in which chunks travel, or the rank copies, sums or waits. `hidden` is the part of it
  // in which the rank multiplies too.
  std::int64_t communication = 0;
  std::int64_t hidden = 0;
};

// The problem with the longest time comes first. A call without a recorded begin or end is left
// out.
std::vector<Calls> calls_of(const trace::RankRecords& rank);

// Leaves out calls that don't lie within one of these intervals, which are disjoint and sorted.
std::vector<Calls> calls_of(const trace::RankRecords& rank, std::span<const TimeInterval> within);

// From the first record to the last. A rank is exposed while it is in a call and does not multiply;
// time between calls belongs to the program.
Run run_of_calls(std::string title, std::span<const trace::RankRecords> ranks);

}  // namespace plait::report
