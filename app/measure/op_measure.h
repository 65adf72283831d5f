// Measures an operator's plans side by side, on all ranks together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/op_setup.h"
#include "measure/race.h"
#include "measure/recording.h"
#include "plait/communicator.h"

namespace plait::measure {

struct PlanTimes {
  Plan plan;
  Times times;      // of the slowest rank, in each repetition
  bool bits_equal;  // equal to the serial plan's, on every rank
};

struct OpMeasurement {
  OpSize size;
  int ranks = 0;
  std::string transport;
  std::optional<Link> link;
  std::optional<double> ns_per_flop;  // of products that are replaced by waiting
  Times product;                      // alone
  Times collective;                   // alone, over the link
  Times collective_cpu;               // alone, without the link: the work of the processors
  std::vector<PlanTimes> plans = {};  // the serial one first

  double ideal() const;  // nanoseconds
  double bound() const;
  double serial() const { return plans.front().times.median; }
  double speedup(const PlanTimes& one) const { return serial() / one.times.median; }

  // The share of what could be hidden that was hidden; nothing if that is within the noise, or if
  // the times don't add up.
  std::optional<double> efficiency(const PlanTimes& one) const;
  // The efficiency of a run that took `time` where the serial run took `beside`.
  std::optional<double> efficiency(double time, double beside) const;
};

// Collective; the result is the same on all ranks.
OpMeasurement measure(const OpSetup& setup, const OpSize& size, Communicator& comm);

// Collective. Runs every plan once more, for timelines. Returns the records on rank 0, and nothing
// on the others.
Recorded record(const OpSetup& setup, const OpMeasurement& result, Communicator& comm);

}  // namespace plait::measure
