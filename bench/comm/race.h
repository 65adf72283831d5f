// Measures alternatives side by side, on all ranks at once.
//
//   const auto results = race(comm, {{"plait", [&] { plait::all_reduce(in, out, comm); }},
//                                    {"MPI", [&] { MPI_Allreduce(...); }}}, effort);
//
// A repetition is a run of back-to-back calls of one contender, which all ranks start together. Its
// time per call is that of the slowest rank. Contenders take turns in alternating order, so that
// drift (clock rates, other load, the state of caches) affects all of them alike. A repetition in
// which a rank left its processor measures something else: the kernel gave the processor to another
// program, or the rank waited so long for such a rank that it slept. These repetitions are repeated
// until Effort's patience ends. If all were disturbed, the result is made from them, and has kept =
// 0.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plait/communicator.h"

namespace plait::bench {

using base::Nanoseconds;

// Nanoseconds per call. The median is the time to expect; the minimum is that of an undisturbed
// run.
struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;
  int kept = 0;   // undisturbed repetitions; 0: all were disturbed
  int tried = 0;  // repetitions made
};

struct Contender {
  std::string name;
  std::function<void()> call;  // called by all ranks together
  // before every call, not measured; each repetition is then one call
  std::function<void()> prepare = {};
};

struct Effort {
  int repetitions = 41;
  Nanoseconds lasting = 1 * base::kMillisecond;  // the least duration of a repetition
  Nanoseconds patience = 8 * base::kSecond;      // for one race
};

// Collective. Every rank gets the same results, in the order of the contenders.
std::vector<Summary> race(Communicator& comm, const std::vector<Contender>& contenders,
                          const Effort& effort);

// Samples may be in any order.
Summary summarize(std::vector<double> samples);

// How often the calling thread left its processor: because the kernel gave it to another thread, or
// because the thread slept.
struct Switches {
  long forced;
  long given;

  bool operator==(const Switches&) const = default;
};
Switches switches();

// The largest of the ranks' values, on all ranks.
double largest(Communicator& comm, double mine);

}  // namespace plait::bench
