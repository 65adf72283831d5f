// Machines and problems for tests of predicted times.
#pragma once

#include <string>

#include "plan/cost_model.h"

namespace plait::plan {

// 100 flops per nanosecond for any number of rows; work costs nothing.
inline MachineProfile idle_profile() {
  MachineProfile profile;
  profile.machine = "somewhere";
  profile.products = {{.kind = "bf16", .rows = 1, .flops_per_ns = 100},
                      {.kind = "f32", .rows = 1, .flops_per_ns = 50}};
  profile.transports = {{.name = "shm", .latency = 0, .bytes_per_ns = 0}};
  profile.copy = profile.sum = 1e9;
  profile.chunk = profile.start = profile.narrow = 0;
  profile.beside = 1;
  profile.uncertainty = 0.02;
  return profile;
}

// An idle_profile() in which copies and sums take their real time.
inline MachineProfile busy_profile() {
  MachineProfile profile = idle_profile();
  profile.copy = 5;
  profile.sum = 10;
  profile.chunk = 500;
  profile.start = 2000;
  profile.narrow = 0.1;
  profile.beside = 1.2;
  return profile;
}

inline PlanKey problem(const std::string& op, const std::string& link = "",
                       const std::string& sizes = "m=1024 n=4096 k=4096") {
  std::string text = "op=" + op + " " + sizes + " transport=shm";
  if (!link.empty()) text += " link=" + link;
  return parse_plan_key(text);
}

// A problem over a link on which the collective takes `ratio` times the product.
inline PlanKey balanced(const std::string& op, double ratio) {
  PlanKey key = problem(op, "1gbit");
  const CostModel model(idle_profile());
  const Prediction serial = model.predict(key, parse_plan("serial"));
  key.link->bytes_per_second *= serial.transfer / serial.product / ratio;
  return key;
}

inline constexpr const char* kOps[] = {"matmul_all_reduce",     "matmul_reduce_scatter",
                                       "matmul_all_gather",     "all_gather_matmul",
                                       "reduce_scatter_matmul", "all_reduce_matmul"};

}  // namespace plait::plan
