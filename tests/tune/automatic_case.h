// Plans of a cache in a folder of its own, for tests of automatic plans.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
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

inline const Plan kOdd = parse_plan("pipelined parts=7 first=33");

}  // namespace plait
