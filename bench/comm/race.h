// Measures alternatives side by side, on all ranks at once.
//
//   const auto results = race(comm, {{"plait", [&] { plait::all_reduce(in, out, comm); }},
//                                    {"MPI", [&] { MPI_Allreduce(...); }}}, effort);
//
// A repetition is a run of back-to-back calls of one contender that all ranks enter together; its
// time per call is that of the slowest rank. Contenders take turns, in alternating order, so that
// what drifts (clock rates, neighbours, the state of the caches) falls on all of them alike.
// Repetitions in which a rank left its processor measure somebody else: either the kernel gave it
// to another program, or the rank had to wait so long for one that this happened to that it went to
// sleep. They are made again, for as long as Effort has patience. Where all were disturbed to the
// end, the result is of those, and says so: none was kept.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plait/communicator.h"

namespace plait::bench {

using base::Nanoseconds;

// Nanoseconds per call. The median says what to expect; the minimum is what a quiet moment gives.
struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;
  int kept = 0;   // repetitions that count; 0 where all were disturbed
  int tried = 0;  // repetitions made
};

struct Contender {
  std::string name;
  std::function<void()> call;          // by all ranks together
  std::function<void()> prepare = {};  // before every call, outside the clock; makes calls single
};

struct Effort {
  int repetitions = 41;
  Nanoseconds lasting = 1 * base::kMillisecond;  // of one repetition, if one call is shorter
  Nanoseconds patience = 8 * base::kSecond;      // with one race
};

// Collective. Every rank gets the same results, in the order of the contenders.
std::vector<Summary> race(Communicator& comm, const std::vector<Contender>& contenders,
                          const Effort& effort);

// Of any samples, in any order.
Summary summarize(std::vector<double> samples);

// How often the calling thread left its processor: because the kernel gave it to another, or of its
// own will, to sleep.
struct Switches {
  long forced;
  long given;

  bool operator==(const Switches&) const = default;
};
Switches switches();

// The largest of the ranks' values, on all ranks.
double largest(Communicator& comm, double mine);

}  // namespace plait::bench
