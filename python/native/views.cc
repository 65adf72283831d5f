#include "views.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

#include "plait/error.h"
#include "plait/packed_weight.h"

namespace plait::python {

namespace {

[[noreturn]] void refuse(Argument argument, const std::string& words) {
  throw Error(Code::invalid_argument,
              std::string(argument.function) + ": " + std::string(argument.name) + " " + words);
}

[[noreturn]] void refuse_what_is_no_array(nb::handle object, Argument argument) {
  const auto type = nb::cast<std::string>(nb::type_name(object.type()));
  refuse(argument, "is of type " + type + "; it can be an array or a TensorView");
}

}  // namespace

TensorView view_of(nb::handle object, Argument argument) {
  if (object.is_none()) return {};
  if (nb::isinstance<TensorView>(object)) return nb::cast<const TensorView&>(object);
  if (Array array; nb::try_cast(object, array)) return matrix(array, argument);
  if (ConstArray array; nb::try_cast(object, array))
    refuse(argument, "is read-only, and the call writes it");
  refuse_what_is_no_array(object, argument);
}

ConstTensorView const_view_of(nb::handle object, Argument argument) {
  if (object.is_none()) return {};
  if (nb::isinstance<TensorView>(object)) return nb::cast<const TensorView&>(object);
  if (ConstArray array; nb::try_cast(object, array)) return matrix(array, argument);
  refuse_what_is_no_array(object, argument);
}

Weight weight_of(nb::handle object, Argument argument) {
  if (nb::isinstance<PackedWeight>(object)) return nb::cast<const PackedWeight&>(object);
  if (nb::isinstance<WeightView>(object)) return nb::cast<const WeightView&>(object);
  refuse(argument,
         "is neither a PackedWeight nor a WeightView, which says how it lies: "
         "WeightView(w, WeightLayout.out_in)");
}

void bind_views(nb::module_& m) {
  nb::class_<TensorView>(m, "TensorView",
                         "Rows in memory by their address. The caller keeps the memory alive.")
      .def(
          "__init__",
          [](TensorView* self, std::uintptr_t data, Dtype dtype, std::int64_t rows,
             std::int64_t cols, std::int64_t row_stride) {
            // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has addresses as numbers.
            new (self) TensorView{.data = reinterpret_cast<void*>(data),
                                  .dtype = dtype,
                                  .rows = rows,
                                  .cols = cols,
                                  .row_stride = row_stride};
          },
          nb::arg("data"), nb::arg("dtype"), nb::arg("rows"), nb::arg("cols"),
          nb::arg("row_stride"))
      .def_ro("rows", &TensorView::rows)
      .def_ro("cols", &TensorView::cols)
      .def_ro("row_stride", &TensorView::row_stride);
  nb::class_<WeightView>(m, "WeightView",
                         "A plain weight, and how it lies: WeightView(w, WeightLayout.out_in).\n"
                         "Nothing is copied, and nothing is guessed from shapes.")
      .def(
          "__init__",
          [](WeightView* self, nb::handle view, WeightLayout layout) {
            new (self)
                WeightView{.view = const_view_of(view, {"WeightView", "view"}), .layout = layout};
          },
          nb::arg("view"), nb::arg("layout"), nb::keep_alive<1, 2>(),
          nb::sig("def __init__(self, view: Array | TensorView, layout: WeightLayout) -> None"))
      .def_prop_ro("n", &WeightView::n)
      .def_prop_ro("k", &WeightView::k)
      .def_ro("layout", &WeightView::layout)
      .def("turned", &WeightView::turned, nb::keep_alive<0, 1>(),
           "The same elements with inputs and outputs exchanged.");
  nb::class_<WeightKind>(m, "WeightKind", "What is known of a weight besides its sizes.")
      .def(
          "__init__",
          [](WeightKind* self, Dtype dtype, std::optional<QuantScheme> scheme, bool is_packed) {
            new (self) WeightKind{
                .dtype = dtype, .scheme = scheme, .is_packed = is_packed || scheme.has_value()};
          },
          nb::arg("dtype"), nb::arg("scheme") = nb::none(), nb::arg("is_packed") = false)
      .def_static(
          "of",
          [](nb::handle weight) { return weight_of(weight, {"WeightKind", "weight"}).kind(); },
          nb::arg("weight"), nb::sig("def of(weight: PackedWeight | WeightView) -> WeightKind"),
          "The kind of a weight.")
      .def("__str__", [](const WeightKind& kind) { return name(kind); });
}

}  // namespace plait::python
