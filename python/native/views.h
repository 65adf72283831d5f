// The operands of operators: views of memory by its address, arrays of any framework, and weights.
#pragma once

#include <string>

#include "native.h"
#include "plait/stream.h"
#include "plait/weight.h"
#include "tensor.h"

namespace plait::python {

// A TensorView, or an array, which is viewed without a copy; None is an empty view.
TensorView view_of(nb::handle object, Argument argument);

// Views memory that is only read, as view_of() does.
ConstTensorView const_view_of(nb::handle object, Argument argument);

// The stream of a call on a GPU: the number of a cudaStream_t, or an object that has it as
// `cuda_stream`. None is torch's current stream if x is a tensor of torch on a GPU, and else the
// default stream.
Stream stream_of(nb::handle object, nb::handle x, const ConstTensorView& rows, Argument argument);

// "cpu", "cuda:1"
Device device_called(const std::string& text, Argument argument);

// A PackedWeight or a WeightView.
Weight weight_of(nb::handle object, Argument argument);

}  // namespace plait::python
