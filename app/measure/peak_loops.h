// Loops of multiply-adds at the highest rate of the processor, which no product can exceed.
#pragma once

#include <cstdint>
#include <span>

#include "plait/dtype.h"

namespace plait::measure {

struct PeakLoop {
  const char* name;  // the instruction's name
  bool (*usable)();
  // Runs so many rounds on this thread, and returns the operations of one round. A multiplication
  // and an addition are two.
  double (*run)(std::int64_t rounds);
};

// The loops that multiply this operand, f32 or bf16, best first. The last one runs everywhere.
std::span<const PeakLoop> peak_loops(Dtype operand);

bool always_usable();
double run_portable(std::int64_t rounds);

}  // namespace plait::measure
