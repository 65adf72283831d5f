// The network between the hosts of a running program. Its ranks measure it before they choose
// their first plan, so that plans suit it without tuning.
#pragma once

#include <string>
#include <vector>

#include "plait/communicator.h"
#include "plait/link.h"
#include "plan/known_links.h"
#include "plan/profile.h"

namespace plait::tune {

struct Transfers {
  std::vector<double> times;  // of each on the slowest rank, in ns
  double delayed = 0;         // the share in which another program took a rank's processor
};

struct LinkSamples {
  Transfers short_ones;  // of next to nothing
  Transfers long_ones;   // one after the other
  double bytes = 0;      // of a long one
};

// The rate by the median of the long ones: one that another program delays, or that a network lets
// through as a burst after such a pause, says nothing. The latency by the shortest of the short
// ones, to which other programs only add.
plan::MeasuredLink link_of(const LinkSamples& samples);

// Collective; the result is the same on all ranks. The ranks' hosts carry traffic both ways at
// once, as they do for an operator.
plan::MeasuredLink measure_network(Communicator& comm, int threads);

// Measures the network, once for each communicator unless it has changed, and compares it with what
// rank 0 finds beside its plan cache. Stored figures count unless the new ones clearly differ, so
// that all runs look for the same plans; otherwise the new ones are stored. `cache` is empty on
// ranks that don't store anything. Collective.
enum class Known { as_before, has_changed };
plan::TransportFigures known_network(Communicator& comm, int threads, const std::string& cache,
                                     Known known = Known::as_before);

// Scales the rates of a profile's products to a short product of this machine. Collective.
void measure_products(plan::MachineProfile& profile, Communicator& comm);

// The link with its figures rounded to steps: each rate is half as large again as the one before,
// each latency twice as large. So programs that measure a link twice find the same plans.
Link about(const plan::TransportFigures& network);

}  // namespace plait::tune
