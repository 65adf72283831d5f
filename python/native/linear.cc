#include "plait/linear.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

#include "linear.h"
#include "named.h"
#include "plait/packed_weight.h"
#include "plans.h"
#include "views.h"

namespace plait::python {
namespace {

template <class Layer>
class PyLayer : public PyLinear {
 public:
  PyLayer(const LinearDesc& desc, PyCommunicator& comm, const LinearOptions& options)
      : PyLinear(desc, comm),
        layer_(comm.use([&](Communicator& c) { return Layer(desc, c, options); })) {}

  void forward(const LinearForward& call, LinearState* state) override {
    comm().use([&](Communicator&) { layer_.forward(call, state); });
  }
  void backward(const LinearBackward& call, const LinearState* state) {
    comm().use([&](Communicator&) { layer_.backward(call, state); });
  }

 private:
  Layer layer_;
};

std::optional<Weight> optional_weight(nb::handle object, Argument argument) {
  if (object.is_none()) return std::nullopt;
  return weight_of(object, argument);
}

template <class Layer>
void bind_layer(nb::module_& m, const char* name, const char* doc) {
  using Bound = PyLayer<Layer>;
  nb::class_<Bound, PyLinear>(m, name, doc)
      .def(
          "__init__",
          [](Bound* self, const LinearDesc& desc, PyCommunicator& comm,
             const LinearOptions* options) {
            new (self) Bound(desc, comm, options == nullptr ? LinearOptions() : *options);
          },
          nb::arg("desc"), nb::arg("comm"), nb::arg("options") = nb::none(), nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>(),
          nb::sig("def __init__(self, desc: LinearDesc, comm: Communicator, "
                  "options: LinearOptions | None = None) -> None"),
          "Collective: ranks tell one another their shares.")
      .def(
          "forward",
          [name](Bound& layer, nb::handle x, nb::handle weight, nb::handle out, nb::handle bias,
                 LinearState* state) {
            layer.forward({.x = const_view_of(x, {name, "x"}),
                           .weight = weight_of(weight, {name, "weight"}),
                           .out = view_of(out, {name, "out"}),
                           .bias = const_view_of(bias, {name, "bias"})},
                          state);
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::kw_only(),
          nb::arg("bias") = nb::none(), nb::arg("state") = nb::none(),
          nb::sig("def forward(self, x: Array | TensorView, weight: PackedWeight | WeightView, "
                  "out: Array | TensorView, *, bias: Array | TensorView | None = None, "
                  "state: LinearState | None = None) -> None"),
          "Collective. `bias` is [1, outputs]: this rank's of a column layer, all of a row layer.")
      .def(
          "backward",
          [name](Bound& layer, nb::handle grad_out, nb::handle x, nb::handle weight,
                 nb::handle turned, nb::handle grad_x, nb::handle grad_weight, nb::handle grad_bias,
                 bool accumulate, std::int64_t rows, const LinearState* state) {
            layer.backward({.x = const_view_of(x, {name, "x"}),
                            .weight = optional_weight(weight, {name, "weight"}),
                            .turned = optional_weight(turned, {name, "turned"}),
                            .grad_out = const_view_of(grad_out, {name, "grad_out"}),
                            .grad_x = view_of(grad_x, {name, "grad_x"}),
                            .grad_weight = view_of(grad_weight, {name, "grad_weight"}),
                            .grad_bias = view_of(grad_bias, {name, "grad_bias"}),
                            .accumulate = accumulate,
                            .rows = rows},
                           state);
          },
          nb::arg("grad_out"), nb::kw_only(), nb::arg("x") = nb::none(),
          nb::arg("weight") = nb::none(), nb::arg("turned") = nb::none(),
          nb::arg("grad_x") = nb::none(), nb::arg("grad_weight") = nb::none(),
          nb::arg("grad_bias") = nb::none(), nb::arg("accumulate") = false, nb::arg("rows") = -1,
          nb::arg("state") = nb::none(),
          nb::sig("def backward(self, grad_out: Array | TensorView, *, "
                  "x: Array | TensorView | None = None, "
                  "weight: PackedWeight | WeightView | None = None, "
                  "turned: PackedWeight | WeightView | None = None, "
                  "grad_x: Array | TensorView | None = None, "
                  "grad_weight: Array | TensorView | None = None, "
                  "grad_bias: Array | TensorView | None = None, accumulate: bool = False, "
                  "rows: int = -1, state: LinearState | None = None) -> None"),
          "Collective. A gradient that is left out is not asked for. `x` is needed for\n"
          "grad_weight, `weight` or `turned` for grad_x.");
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<LinearDesc>(m, "LinearDesc", "The description of a layer: this rank's sizes.")
      .def(
          "__init__",
          [](LinearDesc* self, std::int64_t inputs, std::int64_t outputs,
             Named<WeightLayout> layout, const WeightKind& weight,
             const std::optional<WeightKind>& turned) {
            new (self) LinearDesc{.inputs = inputs,
                                  .outputs = outputs,
                                  .layout = layout,
                                  .weight = weight,
                                  .turned = turned};
          },
          nb::kw_only(), nb::arg("inputs"), nb::arg("outputs"), nb::arg("layout"),
          nb::arg("weight"), nb::arg("turned") = nb::none());
  nb::class_<LinearOptions>(m, "LinearOptions", "How a layer works: the same on all ranks.")
      .def(
          "__init__",
          [](LinearOptions* self, bool sequence_parallel, bool recompute_all_gather,
             bool column_backward, bool aligned_packing, Named<Dtype> wire,
             const std::optional<Named<Plan>>& plan, const PlanSource* plans, int threads,
             std::string backend) {
            new (self) LinearOptions{.sequence_parallel = sequence_parallel,
                                     .recompute_all_gather = recompute_all_gather,
                                     .column_backward = column_backward,
                                     .aligned_packing = aligned_packing,
                                     .operators = {.wire = wire_of(wire),
                                                   .plan = plan,
                                                   .plans = plans,
                                                   .threads = threads,
                                                   .backend = std::move(backend)}};
          },
          nb::kw_only(), nb::arg("sequence_parallel") = true,
          nb::arg("recompute_all_gather") = true, nb::arg("column_backward") = false,
          nb::arg("aligned_packing") = true, nb::arg("wire").none() = Dtype::f32,
          nb::arg("plan") = nb::none(), nb::arg("plans") = nb::none(), nb::arg("threads") = 0,
          nb::arg("backend") = "", nb::keep_alive<1, 8>())
      .def_rw("sequence_parallel", &LinearOptions::sequence_parallel)
      .def_rw("recompute_all_gather", &LinearOptions::recompute_all_gather)
      .def_rw("column_backward", &LinearOptions::column_backward)
      .def_rw("aligned_packing", &LinearOptions::aligned_packing);
  nb::class_<LinearState>(m, "LinearState", "Values that a backward takes over from its forward.")
      .def(nb::init<>())
      .def_prop_ro("held_bytes", &LinearState::held_bytes);
  m.def(
      "linear_options",
      [](const Settings& settings, const PlanSource& plans) {
        return linear_options(settings, plans);
      },
      nb::arg("settings"), nb::arg("plans"), nb::keep_alive<0, 2>(),
      "Options of layers, as the settings say.");
  nb::class_<LinearMemory>(m, "LinearMemory",
                           "The memory that the layers of a communicator hold together, in bytes.")
      .def_ro("mailboxes", &LinearMemory::mailboxes)
      .def_ro("operators", &LinearMemory::operators)
      .def_ro("workspace", &LinearMemory::workspace);
  m.def(
      "linear_memory",
      [](PyCommunicator& comm) {
        return comm.use([](Communicator& c) { return linear_memory(c); });
      },
      nb::arg("comm"), "The memory that the layers of a communicator hold together.");
  const nb::class_<PyLinear> base(m, "_Linear", "Either of the two layers.");
  bind_layer<ColumnParallelLinear>(
      m, "ColumnParallelLinear",
      "A linear layer whose outputs the ranks share. It keeps sizes and\n"
      "settings: each call brings its operands.");
  bind_layer<RowParallelLinear>(m, "RowParallelLinear",
                                "A linear layer whose inputs the ranks share. It keeps sizes and\n"
                                "settings: each call brings its operands.");
}

}  // namespace plait::python
