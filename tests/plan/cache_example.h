// A cache with two plans, for the tests of its text and of its files.
#pragma once

#include <string>

#include "plan/cache.h"

namespace plait::plan {

inline PlanKey some_problem(int m) {
  return parse_plan_key("op=matmul_all_reduce n=64 k=64 ranks=2 transport=shm m=" +
                        std::to_string(m));
}

inline PlanCache::Entry fused(std::int64_t nanoseconds = 10) {
  return {.plan = parse_plan("fused"), .nanoseconds = nanoseconds, .serial = 20};
}

inline PlanCache example() {
  PlanCache cache("a machine");
  cache.add(some_problem(8), fused());
  cache.add(some_problem(16),
            {.plan = parse_plan("pipelined parts=3 last=25"), .nanoseconds = 1, .serial = 2});
  return cache;
}

}  // namespace plait::plan
