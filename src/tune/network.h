// The network between the hosts of a running program. Its ranks measure it in some 40 ms before
// they choose their first plan, so that plans suit it without tuning.
#pragma once

#include <string>

#include "plait/communicator.h"
#include "plait/link.h"
#include "plan/profile.h"

namespace plait::tune {

// Collective; the result is the same on all ranks. The ranks' hosts carry traffic both ways at
// once, as they do for an operator.
plan::TransportFigures measure_network(Communicator& comm, int threads);

// Measures the network, once for each communicator unless it has changed, and compares it with what
// rank 0 finds beside its plan cache. If they are alike, the stored figures count, so that all runs
// look for the same plans; otherwise the new ones are stored. `cache` is empty on ranks that don't
// store anything. Collective.
enum class Known { as_before, has_changed };
plan::TransportFigures known_network(Communicator& comm, int threads, const std::string& cache,
                                     Known known = Known::as_before);

// Scales the rates of a profile's products to a short product of this machine. Collective.
void measure_products(plan::MachineProfile& profile, Communicator& comm);

// About the link, in steps of a half: programs that measure one link twice should find the same
// plans in their cache.
Link about(const plan::TransportFigures& network);

}  // namespace plait::tune
