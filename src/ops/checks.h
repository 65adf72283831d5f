// What an operator refuses, in one sentence each, before anything is written.
#pragma once

#include <optional>
#include <string>

#include "plait/ops.h"

namespace plait::ops {

// Of a weight, whatever kind it is.
std::int64_t n_of(const OpWeight& weight);
std::int64_t k_of(const OpWeight& weight);
Dtype dtype_of(const OpWeight& weight);
std::optional<QuantScheme> scheme_of(const OpWeight& weight);
std::string kind_of(const OpWeight& weight);  // "bf16", "s8:group=128"

void check(const OpDesc& desc, const OpWeight& weight, const OpOptions& options);
void check(const OpDesc& desc, const OpWeight& weight, const OpCall& call, Communicator& comm);

// Refuses a plan that the operator can't follow.
void check_plan(Operator op, const Plan& plan);

}  // namespace plait::ops
