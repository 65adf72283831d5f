// Refusals of an operator, in one sentence each, before anything is written.
#pragma once

#include <string_view>

#include "plait/ops.h"

namespace plait::ops {

void check(const OpDesc& desc, const OpOptions& options);

// Refuses options of a single call, which what is prepared could not keep.
void check_prepares(std::string_view caller, const OpOptions& options);

// Refuses a weight that nothing on the device could be multiplied by.
void check_usable(Operator op, const Weight& weight, Device device);

// A prepared operator's description with the rows of a call, of which it takes as many or fewer.
OpDesc of_as_many_rows(const OpDesc& prepared, const OpCall& call);

// The place of a rank, which says how many rows are its own.
struct Standing {
  int rank;
  int world;
};
void check(const OpDesc& desc, const OpCall& call, Standing standing);

// Rewords an error for the caller, which knows nothing of the product, the mailbox or the gather
// inside its call, and may be in another call than the rank that met the error first.
Error in_words_of(std::string_view caller, const Error& error);

// Refuses a plan that the operator can't follow.
void check_plan(Operator op, const Plan& plan);

}  // namespace plait::ops
