// Loops that do nothing but multiply and add, as fast as the processor can: what a product can't
// beat.
#pragma once

#include <cstdint>
#include <span>

#include "plait/dtype.h"

namespace plait::cli {

struct PeakLoop {
  const char* name;  // the instruction's
  bool (*usable)();
  // Runs so many rounds on this thread, and answers with the operations of one: a multiplication
  // and an addition are two.
  double (*run)(std::int64_t rounds);
};

// Those that multiply this operand, f32 or bf16, best first; the last is usable everywhere.
std::span<const PeakLoop> peak_loops(Dtype operand);

bool always_usable();
double run_portable(std::int64_t rounds);

}  // namespace plait::cli
