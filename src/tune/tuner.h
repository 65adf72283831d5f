// Measures plans for a problem and returns the best. Every function is collective, and returns the
// same on all ranks.
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
  // for all plans of a problem; more if a call takes long
  base::Nanoseconds each = 2 * base::kSecond;
  std::size_t plans = 10;                     // besides serial
  std::function<void(double)> progress = {};  // of a problem, from 0 to 1
};

struct Tuned {
  PlanKey key;
  Plan plan;
  std::int64_t nanoseconds;
  std::int64_t serial;
  int tried;  // the number of plans tried, including serial
};

// Serial, the usual plans, and those that the model predicts to be fastest.
std::vector<Plan> shortlist(const plan::CostModel& model, const PlanKey& key, std::size_t most);

// Measures plans, the first of them serial; run(i) makes a call with plan i.
Tuned tune_plans(const PlanKey& key, const std::vector<Plan>& plans,
                 const std::function<void(std::size_t plan)>& run, const TuneEffort& effort,
                 Communicator& comm);

// Measures an Operator over the key's link if it has one. The communicator must have the key's
// world and transport.
Tuned tune_problem(const PlanKey& key, const plan::CostModel& model, const TuneEffort& effort,
                   Communicator& comm);

}  // namespace plait::tune
