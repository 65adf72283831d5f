// Measures plans while a program works. The first calls of a problem try one plan after the other;
// from then on, all calls follow the fastest.
//
// All ranks make the same calls in the same order, so every rank counts the calls of a problem
// alike, and all follow the same plan. After each turn of the plans they exchange their times, and
// every rank decides by the times of the slowest.
//
// Problems that differ little in their rows share a trial: prompts are of any length, and each
// length alone would never finish one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plait/communicator.h"
#include "plait/plan.h"
#include "plan/cache.h"
#include "plan/cost_model.h"

namespace plait::tune {

// The problem whose trial this one shares: with up to a quarter more rows, from 16 on.
// 16 → 16, 17 → 20, 512 → 512, 513 → 640
PlanKey shared_problem(PlanKey key);

// Serial, the default, and the plans that the model predicts to be fastest: of all, and of those
// that are pipelined.
std::vector<Plan> plans_to_try(const plan::CostModel& model, const PlanKey& key);

struct OnlineListener {
  // A plan was decided upon that was clearly the best one. Another decision is not worth keeping.
  std::function<void(const PlanKey& key, const plan::PlanCache::Entry& entry)> settled = {};
  // Calls take longer or shorter than when their plan was decided upon. Collective.
  std::function<void()> deviated = {};
};

class Online final : public PlanSource {
 public:
  // Tries plans on the ranks of this communicator. The communicator and the model must outlive this
  // object.
  Online(Communicator& comm, const plan::CostModel& model, OnlineListener listener = {})
      : comm_(comm), model_(model), listener_(std::move(listener)) {}

  // Follows a plan that was decided upon in an earlier run.
  void know(const PlanKey& key, const plan::PlanCache::Entry& entry) const;

  // The decided plan; before the decision, the model's choice.
  std::optional<Plan> find(const PlanKey& key) const override;

  std::optional<Plan> next(const PlanKey& key) const override;

  // The last call of a turn is collective.
  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override;

  // False: there are too many problems already, so that the model decides for this one.
  bool tries(const PlanKey& key) const;

  // The decision and its times.
  std::optional<plan::PlanCache::Entry> decision(const PlanKey& key) const;

  // The most calls that the trials of so many plans take.
  static std::size_t calls(std::size_t plans);

  // After so many calls of a plan that was not clearly the best one, plans are tried again; after
  // twice as many each time. Their trials then take less than a hundredth of the calls.
  static constexpr std::size_t kFirstRetry = 4096;

 private:
  // All plans take turns in the first round. In the second, only the best of them and the model's
  // choice compete with serial, with new times: of many equally fast plans, the best one of the
  // first round was partly lucky.
  struct Trial {
    std::vector<Plan> plans;                      // serial first
    std::vector<std::vector<double>> times = {};  // by plan: of the slowest rank, if turns count
    std::vector<float> turn = {};                 // this rank's times in this turn
    std::vector<int> slow = {};  // by plan: turns that count in which it was far too slow
    int turns = 0;               // finished ones of this round, with the first
    bool is_second_round = false;
    std::optional<plan::PlanCache::Entry> decision = {};
    bool is_repeated = false;  // know() is ignored: an earlier trial's decision does not count
    // The state after a decision: this rank's latest times, after how many it compares them with
    // the decision's, and how often in a row they were found to deviate.
    std::vector<float> latest = {};
    std::size_t compare_after = 0;
    int deviations = 0;
    // If no plan was clearly the best one: the calls that are left until a new trial, and how many
    // they were after the decision.
    std::size_t calls_left = 0;
    std::size_t retry_after = kFirstRetry;
  };
  Trial* trial_of(const PlanKey& key) const;
  std::vector<double> slowest_of(const PlanKey& key, const std::vector<float>& mine) const;
  double as_shared(const PlanKey& key, std::int64_t nanoseconds) const;
  void end_turn(const PlanKey& key, Trial& trial) const;
  std::size_t best_of(const PlanKey& key, const Trial& trial) const;
  std::size_t choice_of_model(const PlanKey& key, const Trial& trial) const;
  static bool is_clearly_best(const Trial& trial, std::size_t best);
  static void drop_slow_plans(Trial& trial, const std::vector<double>& slowest);
  void end_round(const PlanKey& key, Trial& trial) const;
  void watch(const PlanKey& key, Trial& trial, float nanoseconds) const;
  void try_again(const PlanKey& key, Trial& trial, std::size_t compare_after) const;

  Communicator& comm_;
  const plan::CostModel& model_;
  OnlineListener listener_;
  mutable std::unordered_map<PlanKey, Trial, plan::KeyHash> trials_;
};

}  // namespace plait::tune
