// Measures while a program works: the first calls of a problem follow one plan after the other, and
// from then on all follow the fastest.
//
// Every rank counts the calls of a problem, and all make the same calls in the same order, so all
// follow the same plan. When the last trial is over they tell each other their times: what the
// slowest rank took decides, on every rank alike.
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
  using Settled = std::function<void(const PlanKey& key, const PlanCache::Entry& entry)>;

  // Of the ranks of this communicator, which must outlive it, as the model must. `settled` is told
  // what has been decided.
  Online(Communicator& comm, const CostModel& model, Settled settled = {})
      : comm_(comm), model_(model), settled_(std::move(settled)) {}

  // What is decided; before that, what the model would choose.
  std::optional<Plan> find(const PlanKey& key) const override;

  std::optional<Plan> next(const PlanKey& key) const override;

  // Collective with the last call of a trial.
  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override;

  // Whether this problem has, or can have, a trial: there is room for so many.
  bool tries(const PlanKey& key) const { return trial_of(key) != nullptr; }

  // Calls that a problem's trials take at most, of so many plans.
  static std::size_t calls(std::size_t plans);

 private:
  // All plans take turns; then the best of them alone beside serial, whose times are not those that
  // it was chosen by: of many that are equally fast, one always was lucky.
  struct Trial {
    std::vector<Plan> plans;
    std::vector<float> times;  // by call
    bool is_runoff = false;
    std::optional<Plan> decision;
  };

  Trial* trial_of(const PlanKey& key) const;
  std::vector<std::vector<double>> everybodys_times(const PlanKey& key, const Trial& trial) const;
  void decide(const PlanKey& key, Trial& trial) const;

  Communicator& comm_;
  const CostModel& model_;
  Settled settled_;
  mutable std::map<std::string, Trial> trials_;
};

}  // namespace plait::tune
