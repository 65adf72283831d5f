// Measures what a profile holds: some seconds of products, copies and sums, on all ranks at once.
#pragma once

#include <cstdint>
#include <functional>

#include "plait/communicator.h"
#include "plan/profile.h"

namespace plait::tune {

struct ProfileOptions {
  int threads = 0;  // of each rank; 0: as many as OpenMP would use

  // Of the weights whose products are measured, square ones: those of a middling layer, too large
  // for the caches that a core has to itself.
  std::int64_t side = 4096;

  // Told how many of how many figures are there.
  std::function<void(int done, int total)> progress = {};
};

// Collective; the same on all ranks.
MachineProfile measure_profile(Communicator& comm, const ProfileOptions& options);

}  // namespace plait::tune
