// The sources of plans, and a record of the plans that were followed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plait/plan.h"
#include "plait/settings.h"

namespace plait::python {

// The plans that settings name, and for other problems those of one more source. Counts the calls
// that asked, by problem and plan, for reports.
class RecordedPlans final : public PlanSource {
 public:
  struct Row {
    PlanKey key;
    Plan plan;
    std::int64_t calls;
    std::int64_t nanoseconds;
    std::int64_t first;                     // nanoseconds of the first call, which prepares
    std::optional<PlanReason> reason = {};  // as of the latest call that asked
    bool is_in_use = true;                  // likewise; not where the plan was only tried
  };

  RecordedPlans(const Settings& settings, const PlanSource* further);

  std::optional<Plan> find(const PlanKey& key) const override { return plans_.find(key); }
  std::optional<Plan> next(const PlanKey& key) const override { return plans_.next(key); }
  void took(const PlanKey& key, const Plan& plan, std::int64_t nanoseconds) const override;

  std::optional<PlanReason> reason(const PlanKey& key) const override { return plans_.reason(key); }

  std::vector<Row> rows() const;
  void forget();

 private:
  void renew_reasons(const PlanKey& key) const;

  SettingsPlans plans_;
  // Calls of one communicator take turns, but another thread may ask for the rows meanwhile.
  mutable std::mutex mutex_;
  mutable std::vector<Row> rows_;
};

}  // namespace plait::python
