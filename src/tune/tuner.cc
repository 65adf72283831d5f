#include "tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "plait/collectives.h"
#include "plan/families.h"
#include "tune/agree.h"
#include "tune/halving.h"
#include "tune/op_case.h"

namespace plait::tune {

std::vector<Plan> shortlist(const plan::CostModel& model, const PlanKey& key, std::size_t most) {
  std::vector<Plan> plans = {{.schedule = Schedule::serial}};
  const auto add = [&](const Plan& plan) {
    const bool known = std::find(plans.begin(), plans.end(), plan) != plans.end();
    if (!known && plan::has_schedule(key, plan.schedule) && plans.size() <= most)
      plans.push_back(plan);
  };
  if (key.world == 1 || !traits_of(key.op).communicates()) return plans;
  // These plans are tried whatever the model says, since a wrong model is wrong about all its
  // proposals.
  add({.schedule = Schedule::fused});
  add({.schedule = Schedule::pipelined, .parts = 4});
  add({.schedule = Schedule::pipelined, .parts = 8});
  if (key.family != Family::operators) {
    add({.schedule = Schedule::pipelined, .parts = 2});
    add({.schedule = Schedule::pipelined, .parts = 16});
    return plans;
  }
  for (const plan::Candidate& one : model.rank(key)) add(one.plan);
  return plans;
}

Tuned tune_plans(const PlanKey& key, const std::vector<Plan>& plans,
                 const std::function<void(std::size_t plan)>& run, const TuneEffort& effort,
                 Communicator& comm) {
  const auto time_once = [&](std::size_t i) {
    barrier(comm);
    const base::Nanoseconds begin = base::now();
    run(i);
    return slowest(static_cast<double>(base::now() - begin), comm);
  };
  const Outcome outcome = halve(plans.size(), effort.each, time_once, effort.progress);
  return {.key = key,
          .plan = plans[outcome.winner],
          .nanoseconds = std::llround(outcome.nanoseconds),
          .serial = std::llround(outcome.baseline),
          .tried = static_cast<int>(plans.size())};
}

Tuned tune_problem(const PlanKey& key, const plan::CostModel& model, const TuneEffort& effort,
                   Communicator& comm) {
  const OpCase one({.key = key}, comm);
  // Uses the link of the key, whatever link the ranks were started with.
  Communicator over = comm.with_link(key.link);

  const std::vector<Plan> plans = shortlist(model, key, effort.plans);
  std::vector<std::unique_ptr<OpCase::Runner>> runners;
  runners.reserve(plans.size());
  for (const Plan& plan : plans) runners.push_back(one.runner(plan, over));
  return tune_plans(key, plans, [&](std::size_t i) { runners[i]->run(); }, effort, comm);
}

}  // namespace plait::tune
