// Predicts how long a plan takes: executes the schedules on a simulated clock, with times in place
// of work. All functions are pure; nothing is measured here.
//
//   const CostModel model(profile);
//   const Prediction fused = model.predict(key, parse_plan("fused"));
//   const Plan plan = model.choose(key);       // serial, unless another plan is surely faster
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plait/plan.h"
#include "plan/profile.h"

namespace plait::plan {

// The times of one call on one rank, in nanoseconds: total = product + work + waited.
struct Prediction {
  double total = 0;
  double product = 0;   // in the pieces that the plan makes
  double work = 0;      // copies and sums, by the same processor
  double waited = 0;    // for chunks that have not arrived
  double transfer = 0;  // the time that the busiest link is busy, whether or not a rank waits
  double kept = 0;      // the most bytes of partial sums that wait to be summed

  // Copies, sums and transfers that the product does not hide.
  double exposed() const { return total - product; }
};

// The share of serial's time that a plan must gain. Tuning demands the same of measured plans,
// because runs of one plan differ by as much.
inline constexpr double kLeastGain = 0.01;

// Plans worth considering for the problem, the usual ones first: serial, fused, pipelined with few
// and with many parts, with a short first part (good where communication takes longer than the
// product) and with a short last one (good where the product takes longer).
std::vector<Plan> candidates(const PlanKey& key);

struct Candidate {
  Plan plan;
  Prediction prediction;
};

class CostModel final : public PlanSource {
 public:
  explicit CostModel(MachineProfile profile) : profile_(std::move(profile)) {}

  const MachineProfile& profile() const { return profile_; }

  Prediction predict(const PlanKey& key, const Plan& plan) const;

  // All candidates, fastest first.
  std::vector<Candidate> rank(const PlanKey& key) const;

  // The nanoseconds that `one` must gain on serial to be surely faster. The product's error is the
  // same for both plans and cancels. Errors in copies, sums and waits remain in both, and so does
  // the error in how much cutting slows the product.
  double doubt(const PlanKey& key, const Prediction& one, const Prediction& serial) const;

  // The fastest plan that gains more than doubt(); serial if there is none. The default plan if the
  // ranks are on several hosts, and nothing is known of the network between them.
  Plan choose(const PlanKey& key) const;

  std::optional<Plan> find(const PlanKey& key) const override { return choose(key); }

  std::optional<PlanReason> reason(const PlanKey& key) const override;

 private:
  std::string why(const PlanKey& key, const Prediction& serial) const;

  MachineProfile profile_;
};

}  // namespace plait::plan
