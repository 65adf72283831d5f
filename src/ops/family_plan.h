// The plan of a call that is no Operator.
#pragma once

#include <optional>

#include "plait/communicator.h"
#include "plait/plan.h"

namespace plait::ops {

// The source's plan, or the nearest one that the call can follow; nullopt: it knows none. The
// caller has set all of the key but what follows from the communicator.
std::optional<Plan> plan_of_family(const PlanSource& plans, PlanKey key, Communicator& comm);

}  // namespace plait::ops
