// Measures the figures of a profile: some seconds of products, copies and sums on all ranks at
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "plait/communicator.h"
#include "plan/profile.h"

namespace plait::tune {

struct ProfileOptions {
  int threads = 0;  // of each rank; 0: OpenMP's default

  // The side of the weights in measured products: those of a layer of medium size, too large for
  // the caches of one core. The other measured problems are as wide or deep as this or multiples of
  // it. With a smaller side the figures are those of problems that caches hold.
  std::int64_t side = 4096;

  // The longest time to measure a figure; a few calls are measured even if they take longer.
  base::Nanoseconds longest = std::numeric_limits<base::Nanoseconds>::max();

  // Called with the number of figures measured so far, and of all figures.
  std::function<void(int done, int total)> progress = {};
};

// Collective; the result is the same on all ranks.
plan::MachineProfile measure_profile(Communicator& comm, const ProfileOptions& options);

}  // namespace plait::tune
