// Measures a step's plans side by side, on all ranks together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "measure/race.h"
#include "measure/recording.h"
#include "measure/step_setup.h"
#include "plait/communicator.h"

namespace plait::measure {

struct StepTimes {
  Plan plan;
  Times times = {};         // of the slowest rank, in each repetition
  double forward = 0;       // nanoseconds of forward, the median on rank 0
  std::int64_t peak = 0;    // bytes of the largest rank's process; 0: unknown
  bool bits_equal = false;  // equal to the serial plan's, on every rank
};

struct StepMeasurement {
  int ranks = 0;
  std::string transport;
  std::optional<Link> link;
  base::Nanoseconds pause = 0;        // after each layer
  Times products = {};                // the same products and pauses, without communication
  std::vector<StepTimes> plans = {};  // the serial one first
  // For steps that decode: bytes per nanosecond that each rank reads, all at once, from a block as
  // large as its weights. 0: not measured.
  double reading = 0;

  double serial() const { return plans.front().times.median; }
  const StepTimes& fastest() const;

  // The share of exposed communication in the serial step, and the gain from hiding all of it.
  double comm_share() const { return 1 - products.median / serial(); }
  // True if the share of the serial step differs from this one by more than a tenth of it.
  bool misses(double share) const;
  double amdahl_gain() const { return serial() / products.median - 1; }
  double gain(const StepTimes& one) const { return serial() / one.times.median - 1; }
  double exposed(const StepTimes& one) const { return one.times.median - products.median; }
};

// Collective; the result is the same on all ranks.
StepMeasurement measure(const StepSetup& setup, Communicator& comm);

// Collective. Runs every plan once more, for timelines. Returns the records on rank 0, and nothing
// on the others.
Recorded record(const StepSetup& setup, const StepMeasurement& result, Communicator& comm);

// Collective. Runs so many steps of the fastest plan in a row, as a loop that decodes, for a
// profile. The records have one run, with all of these steps.
int steps_of_loop(const StepSetup& setup);
Recorded record_loop(const StepSetup& setup, const StepMeasurement& result, Communicator& comm);

}  // namespace plait::measure
