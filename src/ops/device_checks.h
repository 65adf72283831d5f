// The checks of operands on a GPU, in addition to those on every device.
#pragma once

#include "plait/ops.h"

namespace plait::ops {

// Refuses what no GPU can multiply, whether there is one or not.
void check_for_gpu(const OpDesc& desc);

// Refuses operands that the GPU can't read, and a GPU that can't be used. The operands have been
// checked for what is the same on every device.
void check_on_gpu(const OpDesc& desc, const OpCall& call);

// Refuses a GPU's memory that was said to be the CPU's, in a process that has used a GPU.
void check_on_cpu(Operator op, const OpCall& call);

}  // namespace plait::ops
