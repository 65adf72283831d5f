// The public function of an operator (plait/ops.h).
#pragma once

#include "plait/ops.h"

namespace plait::ops {

using Blocking = decltype(&matmul);
Blocking blocking(Operator op);

}  // namespace plait::ops
