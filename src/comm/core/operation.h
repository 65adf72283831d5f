// Operators among the operations that chunks belong to.
#pragma once

#include "plait/operator.h"
#include "plait/tag.h"

namespace plait::comm {

// The operators that communicate follow the other operations, in the order of Operator. After them
// come those of plait/ulysses.h and plait/experts.h, which are no Operator.
constexpr Operation operation_of(Operator op) {
  if (!traits_of(op).communicates()) return Operation::custom;
  return static_cast<Operation>(static_cast<int>(Operation::split) + static_cast<int>(op));
}

// The calls in which ranks make something together.
constexpr bool is_set_up(Operation operation) {
  return operation >= Operation::make_mailbox && operation <= Operation::split;
}

// Numbers above it come from other builds, or are damaged.
inline constexpr Operation kLastOperation = Operation::expert_parallel_mlp;

constexpr bool is_operator(Operation operation) { return operation > Operation::split; }

}  // namespace plait::comm
