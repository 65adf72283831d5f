#include "plait/dtype.h"

#include "named.h"
#include "native.h"

namespace plait::python {

void bind_dtype(nb::module_& m) {
  nb::enum_<Dtype>(m, "Dtype", "The element types that plait computes with.")
      .value("f32", Dtype::f32)
      .value("bf16", Dtype::bf16)
      .value("f16", Dtype::f16)
      .value("s8", Dtype::s8);
  m.def(
      "size_of", [](Named<Dtype> dtype) { return size_of(dtype); }, nb::arg("dtype"),
      "Bytes of one element.");
  m.def(
      "unit_roundoff", [](Named<Dtype> dtype) { return unit_roundoff(dtype); }, nb::arg("dtype"),
      "u, such that rounding x to the dtype moves it by at most u*|x|; 0 for s8.");
}

}  // namespace plait::python
