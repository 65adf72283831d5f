#include "plait/quantized.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>

#include <optional>
#include <string>

#include "named.h"
#include "native.h"
#include "tensor.h"

namespace plait::python {
namespace {

QuantizedWeight quantized(GivenArray weight, Named<WeightLayout> layout, Named<QuantScheme> scheme,
                          int threads) {
  const QuantScheme how = scheme;
  const WeightView view{.view = const_matrix(weight, {"quantize", "weight"}), .layout = layout};
  return unlocked([&] { return quantize(view, how, threads); });
}

QuantizedWeight from_parts(Named<QuantScheme> scheme, std::int64_t n, std::int64_t k,
                           GivenArray values, Named<WeightLayout> layout, GivenArray scales,
                           std::optional<GivenArray> offsets, int threads) {
  const QuantScheme how = scheme;
  QuantizedParts parts{.values = const_matrix(values, {"from_parts", "values"}),
                       .layout = layout,
                       .scales = const_matrix(scales, {"from_parts", "scales"})};
  if (offsets) parts.offsets = const_matrix(*offsets, {"from_parts", "offsets"});
  return unlocked([&] { return QuantizedWeight::from_parts(how, n, k, parts, threads); });
}

void bind_scheme(nb::module_& m) {
  nb::enum_<WeightLayout>(m, "WeightLayout", "How the elements of a weight lie.")
      .value("out_in", WeightLayout::out_in, "[n, k]: a row per output, as in torch.nn.Linear.")
      .value("in_out", WeightLayout::in_out, "[k, n]: a row per input.");
  nb::enum_<QuantPer>(m, "QuantPer", "The elements that share a scale.")
      .value("tensor", QuantPer::tensor)
      .value("channel", QuantPer::channel)
      .value("group", QuantPer::group);
  nb::class_<QuantScheme>(m, "QuantScheme",
                          "How a weight is quantised: QuantScheme(\"s8\"), "
                          "QuantScheme(\"s4:group=64:offsets\").")
      .def(
          "__init__",
          [](QuantScheme* self, std::string_view text) {
            new (self) QuantScheme(called<QuantScheme>(text));
          },
          nb::arg("text"))
      .def_ro("bits", &QuantScheme::bits)
      .def_ro("per", &QuantScheme::per)
      .def_ro("group", &QuantScheme::group)
      .def_ro("offsets", &QuantScheme::offsets)
      .def("__str__", [](const QuantScheme& scheme) { return name(scheme); })
      .def("__repr__",
           [](const QuantScheme& scheme) { return "QuantScheme(\"" + name(scheme) + "\")"; })
      .def(
          "__eq__", [](const QuantScheme& a, const QuantScheme& b) { return a == b; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"));
}

}  // namespace

void bind_quantized(nb::module_& m) {
  bind_scheme(m);
  nb::class_<QuantizedWeight>(m, "QuantizedWeight",
                              "A weight of 8 or 4 bits, with its scales: (value + offset) * scale.")
      .def_static("from_parts", &from_parts, nb::arg("scheme"), nb::arg("n"), nb::arg("k"),
                  nb::kw_only(), nb::arg("values"), nb::arg("layout"), nb::arg("scales"),
                  nb::arg("offsets") = nb::none(), nb::arg("threads") = 0,
                  "Copy a weight that was quantised elsewhere: values of int8 (4 bits: two a\n"
                  "byte, the first in the low half), scales and offsets of shape [1, 1], [1, n]\n"
                  "or [groups, n].")
      .def_prop_ro("scheme", &QuantizedWeight::scheme)
      .def_prop_ro("n", &QuantizedWeight::n)
      .def_prop_ro("k", &QuantizedWeight::k)
      .def_prop_ro("groups", &QuantizedWeight::groups)
      .def(
          "values",
          [](nb::handle_t<QuantizedWeight> self) {
            return array_of(nb::cast<const QuantizedWeight&>(self).values(), self);
          },
          "int8 [n, k], or with 4 bits [n, ceil(k / 2)], for from_dlpack(); no copy.")
      .def(
          "scales",
          [](nb::handle_t<QuantizedWeight> self) {
            return array_of(nb::cast<const QuantizedWeight&>(self).scales(), self);
          },
          "float32 [groups, n], for from_dlpack(); no copy.")
      .def(
          "offsets",
          [](nb::handle_t<QuantizedWeight> self) -> std::optional<ViewArray> {
            const auto& weight = nb::cast<const QuantizedWeight&>(self);
            if (!weight.scheme().offsets) return std::nullopt;
            return array_of(weight.offsets(), self);
          },
          "int8 [groups, n], where the scheme has any, for from_dlpack(); no copy.")
      .def(
          "dequantize",
          [](const QuantizedWeight& self, GivenArray out, Named<WeightLayout> given, int threads) {
            const WeightLayout layout = given;
            const TensorView to = matrix(out, {"dequantize", "out"});
            unlocked([&] { self.dequantize(to, layout, threads); });
          },
          nb::arg("out"), nb::kw_only(), nb::arg("layout"), nb::arg("threads") = 0,
          "Write every weight's value to `out`, of float32, bfloat16 or float16.");
  m.def("quantize", &quantized, nb::arg("weight"), nb::kw_only(), nb::arg("layout"),
        nb::arg("scheme"), nb::arg("threads") = 0,
        "Round every weight to its nearest value, ties to even.");
}

}  // namespace plait::python
