#include "views.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <string>

#include "named.h"
#include "plait/error.h"
#include "plait/packed_weight.h"

namespace plait::python {

namespace {

// Python has addresses as numbers.
void* pointer_of(std::uintptr_t number) {
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr)
}

[[noreturn]] void refuse(Argument argument, const std::string& words) {
  throw Error(Code::invalid_argument,
              std::string(argument.function) + ": " + std::string(argument.name) + " " + words);
}

constexpr std::string_view kAccepted = "an array or a TensorView";

}  // namespace

TensorView view_of(nb::handle object, Argument argument) {
  if (object.is_none()) return {};
  if (nb::isinstance<TensorView>(object)) return nb::cast<const TensorView&>(object);
  return matrix({object}, argument, kAccepted);
}

ConstTensorView const_view_of(nb::handle object, Argument argument) {
  if (object.is_none()) return {};
  if (nb::isinstance<TensorView>(object)) return nb::cast<const TensorView&>(object);
  return const_matrix({object}, argument, kAccepted);
}

namespace {

// torch's current stream on the device, if x is a tensor of torch. A program that has one has
// imported torch.
Stream current_stream(nb::handle x, Device device) {
  const nb::dict modules = nb::module_::import_("sys").attr("modules");
  if (!modules.contains("torch")) return {};
  const nb::object torch = modules["torch"];
  if (!nb::isinstance(x, torch.attr("Tensor"))) return {};
  const nb::object stream = torch.attr("cuda").attr("current_stream")(device.index);
  return {.handle = pointer_of(nb::cast<std::uintptr_t>(stream.attr("cuda_stream")))};
}

}  // namespace

Stream stream_of(nb::handle object, nb::handle x, const ConstTensorView& rows, Argument argument) {
  if (object.is_none()) return rows.device == kCpu ? Stream() : current_stream(x, rows.device);
  std::uintptr_t number = 0;
  const nb::object handle = nb::getattr(object, "cuda_stream", object);
  if (!nb::try_cast(handle, number)) {
    refuse(argument, "is " + nb::cast<std::string>(nb::repr(object)) +
                         "; it can be a cudaStream_t as a number, or an object that has one as "
                         "cuda_stream");
  }
  return {.handle = pointer_of(number)};
}

Device device_called(const std::string& text, Argument argument) {
  const std::optional<Device> device = parse_device(text);
  if (!device) refuse(argument, "is '" + text + "'; it can be cpu, cuda or cuda:1");
  return *device;
}

Weight weight_of(nb::handle object, Argument argument) {
  if (nb::isinstance<PackedWeight>(object)) return nb::cast<const PackedWeight&>(object);
  if (nb::isinstance<WeightView>(object)) return nb::cast<const WeightView&>(object);
  refuse(argument,
         "is neither a PackedWeight nor a WeightView, which says how it lies: "
         "WeightView(w, \"out_in\")");
}

void bind_views(nb::module_& m) {
  nb::class_<TensorView>(m, "TensorView",
                         "Rows in memory by their address. The caller keeps the memory alive.\n"
                         "`device` is \"cpu\", or a GPU such as \"cuda:0\".")
      .def(
          "__init__",
          [](TensorView* self, std::uintptr_t data, Named<Dtype> dtype, std::int64_t rows,
             std::int64_t cols, std::int64_t row_stride, const std::string& device) {
            new (self) TensorView{.data = pointer_of(data),
                                  .dtype = dtype,
                                  .rows = rows,
                                  .cols = cols,
                                  .row_stride = row_stride,
                                  .device = device_called(device, {"TensorView", "device"})};
          },
          nb::arg("data"), nb::arg("dtype"), nb::arg("rows"), nb::arg("cols"),
          nb::arg("row_stride"), nb::kw_only(), nb::arg("device") = "cpu")
      .def_ro("rows", &TensorView::rows)
      .def_ro("cols", &TensorView::cols)
      .def_ro("row_stride", &TensorView::row_stride)
      .def_prop_ro("device", [](const TensorView& view) { return name(view.device); });
  nb::class_<WeightView>(m, "WeightView",
                         "A plain weight, and how it lies: WeightView(w, \"out_in\").\n"
                         "Nothing is copied, and nothing is guessed from shapes.")
      .def(
          "__init__",
          [](WeightView* self, nb::handle view, Named<WeightLayout> layout) {
            new (self)
                WeightView{.view = const_view_of(view, {"WeightView", "view"}), .layout = layout};
          },
          nb::arg("view"), nb::arg("layout"), nb::keep_alive<1, 2>(),
          nb::sig(
              "def __init__(self, view: Array | TensorView, layout: WeightLayout | str) -> None"))
      .def_prop_ro("n", &WeightView::n)
      .def_prop_ro("k", &WeightView::k)
      .def_ro("layout", &WeightView::layout)
      .def("turned", &WeightView::turned, nb::keep_alive<0, 1>(),
           "A view of these elements with inputs and outputs exchanged.");
  nb::class_<WeightKind>(m, "WeightKind", "The properties of a weight besides its sizes.")
      .def(
          "__init__",
          [](WeightKind* self, Named<Dtype> dtype, std::optional<Named<QuantScheme>> scheme,
             bool is_packed) {
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
