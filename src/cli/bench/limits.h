// What this machine can do at best: multiplying and adding, and reading memory. To be measured in
// turns with what is compared with it, so that both have the same clock rate and neighbours.
#pragma once

#include <cstddef>
#include <string>

#include "cli/bench/race.h"
#include "plait/dtype.h"

namespace plait::cli {

struct Limit {
  std::string by;  // the instruction's name, where there is a choice
  double amount;   // of operations or bytes, by one call
  Contender call;
};

// Products whose operands are multiplied as f32 or as bf16, by the best instruction there is. A
// multiplication and an addition are two operations.
Limit multiplying(Dtype operand, int threads);

// A block of this size, again and again: as a product of a few rows reads its weight.
Limit reading(std::size_t bytes, int threads);

}  // namespace plait::cli
