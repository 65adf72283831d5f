// Measures plans for a problem, and says which is best. Everything here is collective, and comes to
// the same on all ranks.
//
//   const CostModel model(profile);
//   const Tuned tuned = tune_problem(key, model, {}, comm);
//   cache.add(key, {tuned.plan, tuned.nanoseconds, tuned.serial});
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "plait/communicator.h"
#include "plan/cost_model.h"

namespace plait::tune {

struct TuneEffort {
  base::Nanoseconds each = 2 * base::kSecond;  // for all plans of a problem; more where a call
                                               // takes long
  std::size_t plans = 10;                      // beside serial
  std::function<void(double)> progress = {};   // of a problem, from 0 to 1
};

struct Tuned {
  PlanKey key;
  Plan plan;
  std::int64_t nanoseconds;
  std::int64_t serial;
  int tried;  // plans, serial among them
};

// Serial, the usual plans, and those that the model thinks fastest.
std::vector<Plan> shortlist(const CostModel& model, const PlanKey& key, std::size_t most);

// Over the key's link, where it has one. The communicator has the key's world and transport.
Tuned tune_problem(const PlanKey& key, const CostModel& model, const TuneEffort& effort,
                   Communicator& comm);

}  // namespace plait::tune
