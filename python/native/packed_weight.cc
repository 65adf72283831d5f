#include "plait/packed_weight.h"

#include <nanobind/stl/optional.h>

#include "native.h"
#include "tensor.h"

namespace plait::python {
namespace {

void pack(PackedWeight* self, const ConstArray& weight, WeightLayout layout, int threads) {
  const WeightView view{.view = matrix(weight, {"PackedWeight", "weight"}), .layout = layout};
  unlocked([&] { new (self) PackedWeight(view, threads); });
}

void pack_view(PackedWeight* self, const WeightView& view, int threads) {
  unlocked([&] { new (self) PackedWeight(view, threads); });
}

void pack_quantized(PackedWeight* self, const QuantizedWeight& weight, int threads) {
  unlocked([&] { new (self) PackedWeight(weight, threads); });
}

}  // namespace

void bind_packed_weight(nb::module_& m) {
  nb::class_<PackedWeight>(m, "PackedWeight",
                           "A weight made ready for many products: a copy in panels. Any product\n"
                           "takes it.")
      .def("__init__", &pack_quantized, nb::arg("weight"), nb::kw_only(), nb::arg("threads") = 0)
      .def("__init__", &pack_view, nb::arg("weight"), nb::kw_only(), nb::arg("threads") = 0)
      .def("__init__", &pack, nb::arg("weight"), nb::kw_only(), nb::arg("layout"),
           nb::arg("threads") = 0)
      .def(
          "repack",
          [](PackedWeight& self, const WeightView& weight, int threads) {
            unlocked([&] { self.repack(weight, threads); });
          },
          nb::arg("weight"), nb::kw_only(), nb::arg("threads") = 0,
          "Pack a weight of the same sizes and dtype into the same memory.")
      .def_prop_ro("dtype", &PackedWeight::dtype, "s8 where it is quantised, with 4 bits too.")
      .def_prop_ro("scheme", &PackedWeight::scheme)
      .def_prop_ro("n", &PackedWeight::n)
      .def_prop_ro("k", &PackedWeight::k)
      .def_prop_ro("bytes", &PackedWeight::bytes, "What a product reads of memory.");
}

}  // namespace plait::python
