// Measures a training step's plans side by side, on all ranks together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/bench/race.h"
#include "cli/bench/recording.h"
#include "cli/bench/step_options.h"
#include "plait/communicator.h"

namespace plait::cli {

struct StepTimes {
  Plan plan;
  Times times;              // of the slowest rank, in each repetition
  double forward = 0;       // nanoseconds of forward, the median on rank 0
  std::int64_t peak = 0;    // bytes of the largest rank's process; 0: unknown
  bool bits_equal = false;  // equal to the serial plan's, on every rank
};

struct StepMeasurement {
  int ranks = 0;
  std::string transport;
  std::optional<Link> link;
  base::Nanoseconds pause = 0;   // after each layer
  Times products;                // the same products and pauses, without communication
  std::vector<StepTimes> plans;  // the serial one first

  double serial() const { return plans.front().times.median; }

  // The share of exposed communication in the serial step, and the gain from hiding all of it.
  double comm_share() const { return 1 - products.median / serial(); }
  double amdahl_gain() const { return serial() / products.median - 1; }
  double gain(const StepTimes& one) const { return serial() / one.times.median - 1; }
  double exposed(const StepTimes& one) const { return one.times.median - products.median; }
};

// Collective; the result is the same on all ranks.
StepMeasurement measure(const StepOptions& options, Communicator& comm);

// Collective. If the options request timelines, runs every plan once more. Returns the records on
// rank 0, and nothing on the others.
Recorded record(const StepOptions& options, const StepMeasurement& result, Communicator& comm);

// Writes the timelines that the options name.
void write_timelines(const StepOptions& options, const StepMeasurement& result,
                     const Recorded& recorded);

}  // namespace plait::cli
