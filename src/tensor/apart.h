// Whether what is written to one view leaves another as it is.
#pragma once

#include "plait/tensor_view.h"

namespace plait::tensor {

// No element of one is in memory that the other has too. Columns of one matrix are apart, though
// their rows alternate. Of views of different strides that alternate, nobody looks closer: no.
bool are_apart(const ConstTensorView& one, const ConstTensorView& other);

}  // namespace plait::tensor
