// Decides whether writing to one view leaves another unchanged.
#pragma once

#include "plait/tensor_view.h"

namespace plait::tensor {

// True if the views share no element. Column ranges of one matrix can be apart even though their
// rows alternate in memory. Views with different strides that alternate are not examined, and count
// as overlapping.
bool are_apart(const ConstTensorView& one, const ConstTensorView& other);

}  // namespace plait::tensor
