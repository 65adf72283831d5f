// Refuses what a layer of experts can't do, before anything is done.
#pragma once

#include "experts/placement.h"
#include "plait/experts.h"

namespace plait::experts {

inline constexpr const char* kLayer = "expert_parallel_mlp";

// How the gradient of a weight lies.
inline WeightLayout layout_of(const Weight& weight) {
  return weight.is_packed() ? WeightLayout::out_in : weight.layout();
}

// The place of the rank that calls, for sentences.
struct Caller {
  int rank;
  int world;
};

void check(const ExpertsDesc& desc, const ExpertsOptions& options, Caller caller);
void check(const ExpertsBackward& call, const ExpertsDesc& desc, const Placement& placement,
           Caller caller);
void check(const ExpertsForward& call, const ExpertsDesc& desc, const Placement& placement,
           Caller caller);

}  // namespace plait::experts
