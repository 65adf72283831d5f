// How long a plan would take: the schedules once more, on a clock of their own, with figures in
// place of work. Pure functions; nothing is measured here.
//
//   const CostModel model(profile);
//   const Prediction fused = model.predict(key, parse_plan("fused"));
//   const Plan plan = model.choose(key);       // serial, unless another is surely faster
#pragma once

#include <optional>
#include <vector>

#include "plait/plan.h"
#include "plan/profile.h"

namespace plait {

// Of one call on one rank, in nanoseconds: total = product + work + waited.
struct Prediction {
  double total = 0;
  double product = 0;   // cut as the plan cuts it
  double work = 0;      // copies and sums, which are the processor's too
  double waited = 0;    // for what is on its way
  double transfer = 0;  // how long the busiest link is busy, whoever waits for it
  double kept = 0;      // bytes of partial sums between product and sum, at most

  // Of copies, sums and transfers, what the product does not hide.
  double exposed() const { return total - product; }
};

// Plans worth a thought for the problem, the usual ones first: serial, fused, pipelined in few and
// in many parts, with a short first part (where communication takes longer) and a short last one
// (where the product does).
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

  // All candidates, the fastest first.
  std::vector<Candidate> rank(const PlanKey& key) const;

  // How many nanoseconds `one` must gain on serial to be surely faster. A wrong figure is wrong for
  // all plans of a problem: what both take for the product is equally wrong, and says nothing of
  // which is faster. Copies, sums and waiting are in doubt in either, and so is by how much the
  // product gets longer where it is cut.
  double doubt(const PlanKey& key, const Prediction& one, const Prediction& serial) const;

  // The fastest of those that gain more than that; serial where none does.
  Plan choose(const PlanKey& key) const;

  std::optional<Plan> find(const PlanKey& key) const override { return choose(key); }

 private:
  MachineProfile profile_;
};

}  // namespace plait
