// Measures alternatives side by side, on all ranks at once.
//
//   const auto results = race(comm, {{"plait", [&] { plait::all_reduce(in, out, comm); }},
//                                    {"MPI", [&] { MPI_Allreduce(...); }}}, effort);
//
// A repetition is a run of back-to-back calls of one contender that all ranks enter together; its
// time per call is that of the slowest rank. Contenders take turns, in alternating order, so that
// what drifts (clock rates, neighbours, the state of the caches) falls on all of them alike.
// Repetitions in which the kernel took a rank off its processor for somebody else measure somebody
// else: they are made again, for as long as Effort has patience, and counted.
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
  Nanoseconds patience = 20 * base::kSecond;     // with one race
  bool lenient = false;  // where no repetition was undisturbed, be content with the others
};

// Collective. Every rank gets the same results, in the order of the contenders.
std::vector<Summary> race(Communicator& comm, const std::vector<Contender>& contenders,
                          const Effort& effort);

// Of any samples, in any order.
Summary summarize(std::vector<double> samples);

// How often the kernel gave the calling thread's processor to another.
long preemptions();

// The largest of the ranks' values, on all ranks.
double largest(Communicator& comm, double mine);

}  // namespace plait::bench
