// What operators take: views of memory by its address, arrays of any framework, and weights.
#pragma once

#include "native.h"
#include "plait/weight.h"
#include "tensor.h"

namespace plait::python {

// A TensorView, or an array, which is viewed without a copy; None is an empty view.
TensorView view_of(nb::handle object, Argument argument);

// Views memory that is only read, as view_of() does.
ConstTensorView const_view_of(nb::handle object, Argument argument);

// A PackedWeight or a WeightView.
Weight weight_of(nb::handle object, Argument argument);

}  // namespace plait::python
