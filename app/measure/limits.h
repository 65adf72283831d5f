// The limits of this machine: multiply-adds, and reading memory. They must be measured in turns
// with the results that are compared with them, so that both have the same clock rate and the same
// other load.
#pragma once

#include <cstddef>
#include <string>

#include "measure/race.h"
#include "plait/dtype.h"

namespace plait::measure {

struct Limit {
  std::string by;  // the instruction, if there is a choice
  double amount;   // operations or bytes of one call
  Contender call;
};

// Multiplies operands as f32 or bf16 with the best available instruction. A multiplication and an
// addition are two operations.
Limit multiplying(Dtype operand, int threads);

// Reads a block of this size again and again, as a product of a few rows reads its weight.
Limit reading(std::size_t bytes, int threads);

}  // namespace plait::measure
