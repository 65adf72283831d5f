// Arrays of NumPy, and tensors of any framework that speaks DLPack, as views of the same memory.
//
// Nothing is copied. What plait can't take is refused in a sentence that begins with the function's
// name and names the argument.
#pragma once

#include <nanobind/ndarray.h>

#include <optional>
#include <string_view>

#include "native.h"
#include "plait/collectives.h"
#include "plait/tensor_view.h"

namespace plait::python {

using Array = nb::ndarray<>;
using ConstArray = nb::ndarray<nb::ro>;

struct Argument {
  std::string_view function;
  std::string_view name;
};

// plait's name of an element type; nullopt for types that it does not compute with.
std::optional<Dtype> known(nb::dlpack::dtype type);

// All elements of a contiguous array, whatever its shape.
Elements elements(const Array& array, Argument argument);
ConstElements elements(const ConstArray& array, Argument argument);

// Rows whose elements lie side by side, in memory of the CPU or of a GPU.
TensorView matrix(const Array& array, Argument argument);
ConstTensorView matrix(const ConstArray& array, Argument argument);

// A view that an object owns, for Python to read.
using ViewArray = nb::ndarray<nb::array_api, nb::ro>;
ViewArray array_of(const ConstTensorView& view, nb::handle owner);

}  // namespace plait::python
