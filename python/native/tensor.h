// Arrays of NumPy, and tensors of any framework that speaks DLPack, as views of the same memory.
//
// Nothing is copied. What plait can't take is refused in a sentence that begins with the function's
// name and names the argument.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "native.h"
#include "plait/collectives.h"
#include "plait/tensor_view.h"

namespace plait::python {

struct Argument {
  std::string_view function;
  std::string_view name;
};

// An argument that is to be an array. Any object comes through, so that one that is none is refused
// as an array of the wrong kind is, not in a list of signatures.
struct GivenArray {
  nb::handle object;
};

// plait's name of an element type; nullopt for types that it does not compute with.
std::optional<Dtype> known(nb::dlpack::dtype type);

// All elements of a contiguous array, whatever its shape.
Elements elements(GivenArray array, Argument argument);
ConstElements const_elements(GivenArray array, Argument argument);

// Rows whose elements lie side by side, in memory of the CPU or of a GPU. `accepted`: what else the
// argument can be, for the sentence that refuses it.
TensorView matrix(GivenArray array, Argument argument, std::string_view accepted = "an array");
ConstTensorView const_matrix(GivenArray array, Argument argument,
                             std::string_view accepted = "an array");

// A view that an object owns, for Python to read.
using ViewArray = nb::ndarray<nb::array_api, nb::ro>;
ViewArray array_of(const ConstTensorView& view, nb::handle owner);

}  // namespace plait::python

template <>
struct nanobind::detail::type_caster<plait::python::GivenArray> {
  NB_TYPE_CASTER(plait::python::GivenArray, const_name("Array"))

  bool from_python(handle object, std::uint8_t /*flags*/, cleanup_list* /*list*/) noexcept {
    value.object = object;
    return true;
  }
};
