// Measures plans while a program works. The first calls of a problem try one plan after the other;
// from then on, all calls follow the fastest.
//
// All ranks make the same calls in the same order, so every rank counts the calls of a problem
// alike, and all follow the same plan. After the last trial they exchange their times, and every
// rank decides by the times of the slowest.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plait/communicator.h"
#include "plait/plan.h"
#include "plan/cache.h"
#include "plan/cost_model.h"

namespace plait::tune {

class Online final : public PlanSource {
 public:
  using Settled = std::function<void(const PlanKey& key, const plan::PlanCache::Entry& entry)>;

  // Tries plans on the ranks of this communicator. The communicator and the model must outlive this
  // object. `settled` is called with each decision.
  Online(Communicator& comm, const plan::CostModel& model, Settled settled = {})
      : comm_(comm), model_(model), settled_(std::move(settled)) {}

  // The decided plan; before the decision, the model's choice.
  std::optional<Plan> find(const PlanKey& key) const override;

  std::optional<Plan> next(const PlanKey& key) const override;

  // The last call of a trial is collective.
  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override;

  // Whether this problem has a trial, or may start one (their number is limited).
  bool tries(const PlanKey& key) const { return trial_of(key) != nullptr; }

  // The most calls that the trials of so many plans take.
  static std::size_t calls(std::size_t plans);

 private:
  // All plans take turns in the first round. In the second, only the best of them competes with
  // serial, with new times: of many equally fast plans, the best one of the first round was partly
  // lucky.
  struct Trial {
    std::vector<Plan> plans;
    std::vector<float> times;  // in the order of calls
    bool is_second_round = false;
    std::optional<Plan> decision;
  };

  Trial* trial_of(const PlanKey& key) const;
  std::vector<std::vector<double>> everybodys_times(const PlanKey& key, const Trial& trial) const;
  void decide(const PlanKey& key, Trial& trial) const;

  Communicator& comm_;
  const plan::CostModel& model_;
  Settled settled_;
  mutable std::map<std::string, Trial> trials_;
};

}  // namespace plait::tune
