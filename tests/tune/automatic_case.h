// Plans of a cache in a folder of its own, for tests of automatic plans.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "folder.h"
#include "plan/cache.h"
#include "plan/machine.h"

namespace plait {

class AutomaticPlans : public testing::Test {
 protected:
  std::string path(const std::string& name = "plans") const { return folder_ / name; }

  static PlanKey problem(int world, int threads = base::thread_count(0)) {
    return {.op = Operator::matmul_all_reduce,
            .m = 40,
            .n = 200,
            .k = std::int64_t{96} * world,
            .world = world,
            .threads = threads,
            .transport = "threads"};
  }

  static plan::PlanCache cache_with(const Plan& plan, int world) {
    plan::PlanCache cache(plan::machine_fingerprint());
    cache.add(problem(world), {.plan = plan, .nanoseconds = 1, .serial = 2});
    return cache;
  }

 private:
  const test::Folder folder_;
};

// A plan that is not serial takes half as long as one that is, so that trials have a clear end.
inline std::int64_t clear_time(const Plan& plan) {
  return plan.schedule == Schedule::serial ? 2'000'000 : 1'000'000;
}

// Says that calls have taken such times.
class ClearTimes final : public PlanSource {
 public:
  explicit ClearTimes(const PlanSource& source) : source_(source) {}
  std::optional<Plan> find(const PlanKey& key) const override { return source_.find(key); }
  std::optional<Plan> next(const PlanKey& key) const override { return source_.next(key); }
  void took(const PlanKey& key, const Plan& plan, std::int64_t) const override {
    source_.took(key, plan, clear_time(plan));
  }

 private:
  const PlanSource& source_;
};

inline const Plan kOdd = parse_plan("pipelined parts=7 first=33");

}  // namespace plait
