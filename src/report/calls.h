// What the calls of operators did with their time, from the records of a rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "report/timeline.h"
#include "trace/record.h"

namespace plait::report {

// All calls of one problem on one rank; times in nanoseconds, of all these calls together. Beside
// operators there are "weight gradient" and collectives by their names, whose time is the one from
// start to end where they were started.
struct Calls {
  std::string problem;  // "op=matmul_all_reduce m=..." with the rank's share of n or k
  std::int64_t count = 0;
  std::int64_t time = 0;
  std::int64_t multiplying = 0;    // on one thread or more
  std::int64_t communicating = 0;  // copying and summing, by the rank itself
  std::int64_t waiting = 0;

  // Chunks travel, or the rank copies, sums or waits; and the part of this in which the rank
  // multiplies as well.
  std::int64_t communication = 0;
  std::int64_t hidden = 0;
};

// The problem that took longest comes first. A call whose beginning or end is not recorded is left
// out.
std::vector<Calls> calls_of(const trace::RankRecords& rank);

// From the first record to the last. A rank is exposed where it is in a call and does not multiply:
// what a program does between calls is its own.
Run run_of_calls(std::string title, std::span<const trace::RankRecords> ranks);

}  // namespace plait::report
