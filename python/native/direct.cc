// Calls of a layer that need no more than its product, as those of plait.torch.direct are.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linear.h"
#include "plait/packed_weight.h"
#include "tally.h"
#include "torch_tensors.h"

namespace plait::python {
namespace {

// Functions of torch that tell what has to see each call in this thread: modes, tracers, transforms
// and autocast. Between products, whose weights displace Python from the caches, such a question
// takes microseconds in Python.
class TorchModes {
 public:
  // `forward_ad` is the module whose level says if derivatives are taken in forward mode.
  TorchModes(std::vector<nb::object> questions, nb::object forward_ad)
      : questions_(std::move(questions)), forward_ad_(std::move(forward_ad)) {}

  bool are_on() const {
    const auto has_answer = [](const nb::object& ask) {
      const int is_true = PyObject_IsTrue(ask().ptr());
      if (is_true < 0) throw nb::python_error();
      return is_true == 1;
    };
    return std::any_of(questions_.begin(), questions_.end(), has_answer) ||
           nb::cast<int>(forward_ad_.attr("_current_level")) >= 0;
  }

 private:
  std::vector<nb::object> questions_;
  nb::object forward_ad_;
};

// A call is compared with these.
struct Place {
  std::string kind;
  nb::object group;   // a weak reference
  nb::object groups;  // all that are alive, as torch keeps them
  nb::object options;
  nb::object comm, plans, samples;  // for calls that are traced
};

class DirectLayer {
 public:
  DirectLayer(const TorchTensors& tensors, const TorchModes& modes, PyLinear& layer, Tally& tally,
              Place place)
      : tensors_(tensors), modes_(modes), layer_(layer), tally_(tally), place_(std::move(place)) {}

  const std::string& kind() const { return place_.kind; }
  bool packs() const { return layer_.desc().weight.is_packed; }

  // The product, or None where the call has to be made in another way: see the binding.
  nb::object multiply(nb::handle x, nb::handle weight, nb::handle bias, nb::handle group,
                      nb::handle options) {
    if (!is_of(group, options) || modes_.are_on()) return nb::none();
    std::optional<TorchTensors::Rows> rows = tensors_.all_rows(x);
    if (!rows) return nb::none();
    const std::optional<Weight> by = read_weight(weight);
    TensorView added;
    if (!bias.is_none()) {
      const std::optional<TensorView> row = tensors_.rows(bias, 1);
      if (!row) return nb::none();
      added = *row;
    }
    const LinearDesc& desc = layer_.desc();
    const Dtype dtype = rows->view.dtype;
    const bool fits = by && by->kind() == desc.weight && by->n() == desc.outputs &&
                      by->k() == desc.inputs && rows->view.cols == desc.inputs &&
                      (by->is_packed() || desc.weight.dtype == dtype) &&
                      (bias.is_none() || (added.dtype == dtype && added.cols == desc.outputs));
    if (!fits || needs_gradient(x, weight, bias)) return nb::none();
    rows->sizes.push_back(desc.outputs);
    std::optional<TorchTensors::Made> out = tensors_.make(x, rows->sizes);
    if (!out) return nb::none();
    const auto call = [&] {
      layer_.forward({.x = rows->view, .weight = *by, .out = out->rows, .bias = added}, nullptr);
    };
    if (tally_.is_due(
            {rows->view.rows, desc.outputs, desc.inputs, static_cast<std::int64_t>(dtype)}))
      place_.samples.attr("trace")(place_.comm, place_.plans, nb::cpp_function(call));
    else
      call();
    return std::move(out->tensor);
  }

  // Multiplies by this rank's shares of DTensors; None if autograd is on.
  nb::object multiply_shares(nb::handle x, const nb::dict& parameters, nb::handle dtensor,
                             nb::handle group, nb::handle options) {
    const nb::handle weight = PyDict_GetItem(parameters.ptr(), weight_.ptr());
    const nb::handle bias = PyDict_GetItem(parameters.ptr(), bias_.ptr());
    if (!weight || !weight.type().is(dtensor) || !bias || tensors_.is_grad_enabled())
      return nb::none();
    const nb::object share = weight.attr(local_);
    return multiply(x, share,
                    bias.type().is(dtensor) ? nb::object(bias.attr(local_)) : nb::borrow(bias),
                    group, options);
  }

 private:
  bool is_of(nb::handle group, nb::handle options) {
    if (!options.is(place_.options)) {
      if (!options.equal(place_.options)) return false;
      place_.options = nb::borrow(options);  // comparing them takes as long as all else
    }
    return place_.group().is(group) && PyDict_Contains(place_.groups.ptr(), group.ptr()) == 1;
  }

  // The operands are tensors, or a packed weight, or no bias.
  bool needs_gradient(nb::handle x, nb::handle weight, nb::handle bias) const {
    if (!tensors_.is_grad_enabled()) return false;
    const bool is_packed = nb::isinstance<PackedWeight>(weight);
    return tensors_.requires_grad(x) || (!is_packed && tensors_.requires_grad(weight)) ||
           tensors_.requires_grad(bias);
  }

  std::optional<Weight> read_weight(nb::handle weight) const {
    if (nb::isinstance<PackedWeight>(weight)) return nb::cast<const PackedWeight&>(weight);
    const std::optional<TensorView> view = tensors_.rows(weight, 2);
    if (!view) return std::nullopt;
    return WeightView{.view = *view, .layout = WeightLayout::out_in};
  }

  const TorchTensors& tensors_;
  const TorchModes& modes_;
  PyLinear& layer_;
  Tally& tally_;
  Place place_;
  nb::str weight_{"weight"}, bias_{"bias"}, local_{"_local_tensor"};
};

}  // namespace

void bind_direct(nb::module_& m) {
  nb::class_<TorchModes>(m, "_TorchModes",
                         "Tells if something has to see each call of torch in this thread.")
      .def(nb::init<std::vector<nb::object>, nb::object>(), nb::arg("questions"),
           nb::arg("forward_ad"),
           nb::sig("def __init__(self, questions: collections.abc.Sequence[collections.abc."
                   "Callable[[], object]], forward_ad: object) -> None"))
      .def("are_on", &TorchModes::are_on, "True if a question has an answer, or there is a level.");
  nb::class_<Tally>(m, "_Tally", "Counts calls of layers, and says which of them are traced.")
      .def(nb::init<>())
      .def("clear", &Tally::clear);
  nb::class_<DirectLayer>(m, "_DirectLayer", nb::is_weak_referenceable(),
                          "A layer's calls with all rows and without gradients.")
      .def(
          "__init__",
          [](DirectLayer* self, const TorchTensors& tensors, const TorchModes& modes,
             PyLinear& layer, Tally& tally, std::string kind, nb::object group, nb::object groups,
             nb::object options, nb::object comm, nb::object plans, nb::object samples) {
            new (self) DirectLayer(tensors, modes, layer, tally,
                                   {.kind = std::move(kind),
                                    .group = std::move(group),
                                    .groups = std::move(groups),
                                    .options = std::move(options),
                                    .comm = std::move(comm),
                                    .plans = std::move(plans),
                                    .samples = std::move(samples)});
          },
          nb::arg("tensors"), nb::arg("modes"), nb::arg("layer"), nb::arg("tally"), nb::kw_only(),
          nb::arg("kind"), nb::arg("group"), nb::arg("groups"), nb::arg("options"), nb::arg("comm"),
          nb::arg("plans"), nb::arg("samples"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(),
          "`group` is a weak reference, `groups` a dictionary of those that are not destroyed.\n"
          "`samples` has trace(comm, plans, call), which makes a call and keeps its trace.")
      .def_prop_ro("kind", &DirectLayer::kind, R"(The layer's: "column" or "row".)")
      .def_prop_ro("packs", &DirectLayer::packs, "True if its weight is a PackedWeight.")
      .def("multiply", &DirectLayer::multiply, nb::arg("x").none(), nb::arg("weight").none(),
           nb::arg("bias").none(), nb::arg("group").none(), nb::arg("options").none(),
           nb::sig("def multiply(self, x: object, weight: object, bias: object | None, "
                   "group: object, options: object) -> typing.Any"),
           "Do what forward() does of tensors of torch, and return a new one. It returns None\n"
           "where the call is not as the layer's first one was: of the same group and options, by\n"
           "plain tensors of the layer's sizes and dtype on the CPU, whose rows lie one behind\n"
           "another, that need no gradient, and with nothing of torch that has to see the call.")
      .def("multiply_shares", &DirectLayer::multiply_shares, nb::arg("x").none(),
           nb::arg("parameters"), nb::arg("dtensor"), nb::arg("group").none(),
           nb::arg("options").none(),
           nb::sig("def multiply_shares(self, x: object, parameters: dict[str, typing.Any], "
                   "dtensor: type, group: object, options: object) -> typing.Any"),
           "Do the same by this rank's share of a module's weight and bias, which are DTensors.");
}

}  // namespace plait::python
