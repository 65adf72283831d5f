#include "ops/family_plan.h"

#include <string>
#include <utility>

#include "base/default_floats.h"
#include "comm/session/state.h"
#include "plan/families.h"

namespace plait::ops {

PlanKey key_in(PlanKey key, const Communicator& comm) {
  if (key.family != Family::operators) key.wire = key.x;
  key.world = comm.world();
  key.hosts = comm.state().hosts();
  key.transport = std::string(comm.transport());
  key.link = comm.link();
  return key;
}

std::optional<Plan> plan_of_family(const PlanSource& plans, PlanKey key, Communicator& comm) {
  key = key_in(std::move(key), comm);
  const base::DefaultFloats floats;  // predictions may decide it, which ranks must agree upon
  const std::optional<Plan> found = plans.find(key);
  if (!found) return std::nullopt;
  check(*found, plan::call_name(key));
  return plan::followed_by(key, *found);
}

}  // namespace plait::ops
