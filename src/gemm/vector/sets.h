// The instruction sets that the vector kernel was compiled for.
#pragma once

#include <memory>
#include <span>

#include "base/instruction_set.h"
#include "gemm/kernel.h"

namespace plait::gemm::vector {

struct Set {
  const char* name;
  base::InstructionSet needs;
  void (*multiply)(const TileCall& call);
  Dtype operand;
  bool fused;   // each product is added to the sum, and not rounded before
  bool rounds;  // multiply() takes a TileOut: the Set has store()
  PlainRows (*plain_rows)(Storage storage);
  // True on a processor that is faster with it than with the next one of its bits; nullptr: on any.
  bool (*is_faster)() = nullptr;
};

// Best first; the last one is usable everywhere.
std::span<const Set> sets();

std::unique_ptr<TileKernel> create(const Set& set);

void multiply_portable(const TileCall& call);
PlainRows plain_rows_portable(Storage storage);

}  // namespace plait::gemm::vector
