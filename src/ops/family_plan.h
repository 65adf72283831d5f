// Keys of calls, and the plan of one that is no Operator.
#pragma once

#include <optional>

#include "plait/communicator.h"
#include "plait/plan.h"

namespace plait::ops {

// The key with what follows from the communicator; the caller has set all the rest.
PlanKey key_in(PlanKey key, const Communicator& comm);

// The source's plan, or the nearest one that the call can follow; nullopt: it knows none. The key
// may lack what follows from the communicator.
std::optional<Plan> plan_of_family(const PlanSource& plans, PlanKey key, Communicator& comm);

}  // namespace plait::ops
