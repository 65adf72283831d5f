// What an operator refuses, in one sentence each, before anything is written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plait/ops.h"

namespace plait::ops {

// Of a weight, whatever kind it is.
std::int64_t n_of(const OpWeight& weight);
std::int64_t k_of(const OpWeight& weight);
Dtype dtype_of(const OpWeight& weight);
std::optional<QuantScheme> scheme_of(const OpWeight& weight);
std::string kind_of(const OpWeight& weight);  // "bf16", "s8:group=128"

// As a PlanKey has it, which also says whether each call packs it: "bf16:plain".
std::string plan_kind_of(const OpWeight& weight);

void check(const OpDesc& desc, const OpWeight& weight, const OpOptions& options);

// Refuses a weight that nobody could multiply by.
void check_usable(Operator op, const OpWeight& weight);

// Where a rank stands, which says how many rows are its own.
struct Standing {
  int rank;
  int world;
};
void check(const OpDesc& desc, const OpWeight& weight, const OpCall& call, Standing standing);

// The same error in the words of whoever made a call, who knows of no product, no mailbox and no
// gather that it is made of, nor of the call that another rank was in who met the error first.
Error in_words_of(std::string_view who, const Error& error);

// Refuses a plan that the operator can't follow.
void check_plan(Operator op, const Plan& plan);

}  // namespace plait::ops
