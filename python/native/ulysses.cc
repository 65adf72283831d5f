#include "plait/ulysses.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "communicator.h"
#include "named.h"
#include "plait/ulysses_layers.h"
#include "plans.h"
#include "views.h"

namespace plait::python {
namespace {

// Pairs of a first column and a number of columns, for each rank.
using Groups = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;

Groups groups_of(const ColumnGroups& columns) {
  Groups groups;
  for (const auto& group : columns) {
    auto& pairs = groups.emplace_back();
    for (const ColumnRange& range : group) pairs.emplace_back(range.first, range.count);
  }
  return groups;
}

ColumnGroups columns_of(const Groups& groups) {
  ColumnGroups columns;
  for (const auto& pairs : groups) {
    auto& group = columns.emplace_back();
    for (const auto& [first, count] : pairs) group.push_back({first, count});
  }
  return columns;
}

// A layer takes turns with the other calls of its communicator.
template <class Layer>
class PyUlysses {
 public:
  PyUlysses(UlyssesDesc desc, PyCommunicator& comm, UlyssesOptions options)
      : comm_(comm), layer_(comm.use([&](Communicator& c) {
          return Layer(std::move(desc), c, std::move(options));
        })) {}

  void forward(const LinearForward& call, UlyssesState* state) {
    comm_.use([&](Communicator&) {
      if constexpr (std::is_same_v<Layer, UlyssesOutput>) {
        layer_.forward(call, state);
      } else {
        layer_.forward(call);
      }
    });
  }
  void backward(const LinearBackward& call, const UlyssesState* state) {
    comm_.use([&](Communicator&) {
      if constexpr (std::is_same_v<Layer, UlyssesOutput>) {
        layer_.backward(call, state);
      } else {
        layer_.backward(call);
      }
    });
  }

 private:
  PyCommunicator& comm_;
  Layer layer_;
};

// UlyssesQKV takes no state: it is left out of its signatures.
template <class Layer>
void bind_layer(nb::module_& m, const char* name, const char* doc) {
  using Bound = PyUlysses<Layer>;
  nb::class_<Bound>(m, name, doc)
      .def(
          "__init__",
          [](Bound* self, std::int64_t inputs, std::int64_t outputs, const Groups& columns,
             PyCommunicator& comm, Named<WeightLayout> layout,
             const std::optional<Named<Plan>>& plan, const PlanSource* plans, int threads,
             std::string backend) {
            UlyssesOptions options = {
                .plans = plans, .threads = threads, .backend = std::move(backend)};
            if (plan) options.plan = *plan;
            new (self) Bound({.inputs = inputs,
                              .outputs = outputs,
                              .layout = layout,
                              .columns = columns_of(columns)},
                             comm, std::move(options));
          },
          nb::arg("inputs"), nb::arg("outputs"), nb::arg("columns"), nb::arg("comm"), nb::kw_only(),
          nb::arg("layout") = WeightLayout::out_in, nb::arg("plan") = nb::none(),
          nb::arg("plans") = nb::none(), nb::arg("threads") = 0, nb::arg("backend") = "",
          nb::keep_alive<1, 5>(), nb::keep_alive<1, 8>(),
          nb::sig("def __init__(self, inputs: int, outputs: int, "
                  "columns: collections.abc.Sequence[collections.abc.Sequence[tuple[int, int]]], "
                  "comm: Communicator, *, layout: WeightLayout | str = "
                  "plait._native.WeightLayout.out_in, plan: Plan | str | None = None, "
                  "plans: PlanSource | None = None, threads: int = 0, "
                  "backend: str = '') -> None"),
          "Sizes of the whole weight, and for each rank pairs of a first column and a number of\n"
          "columns.")
      .def(
          "forward",
          [name](Bound& layer, nb::handle x, nb::handle weight, nb::handle out, nb::handle bias,
                 UlyssesState* state) {
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
                  "state: UlyssesState | None = None) -> None"),
          "Collective. `bias` is [1, outputs], all of them. UlyssesQKV uses no state.")
      .def(
          "backward",
          [name](Bound& layer, nb::handle grad_out, nb::handle x, nb::handle weight,
                 nb::handle grad_x, nb::handle grad_weight, nb::handle grad_bias, bool accumulate,
                 const UlyssesState* state) {
            LinearBackward call = {.x = const_view_of(x, {name, "x"}),
                                   .grad_out = const_view_of(grad_out, {name, "grad_out"}),
                                   .grad_x = view_of(grad_x, {name, "grad_x"}),
                                   .grad_weight = view_of(grad_weight, {name, "grad_weight"}),
                                   .grad_bias = view_of(grad_bias, {name, "grad_bias"}),
                                   .accumulate = accumulate};
            if (!weight.is_none()) call.weight = weight_of(weight, {name, "weight"});
            layer.backward(call, state);
          },
          nb::arg("grad_out"), nb::kw_only(), nb::arg("x") = nb::none(),
          nb::arg("weight") = nb::none(), nb::arg("grad_x") = nb::none(),
          nb::arg("grad_weight") = nb::none(), nb::arg("grad_bias") = nb::none(),
          nb::arg("accumulate") = false, nb::arg("state") = nb::none(),
          nb::sig("def backward(self, grad_out: Array | TensorView, *, "
                  "x: Array | TensorView | None = None, weight: WeightView | None = None, "
                  "grad_x: Array | TensorView | None = None, "
                  "grad_weight: Array | TensorView | None = None, "
                  "grad_bias: Array | TensorView | None = None, accumulate: bool = False, "
                  "state: UlyssesState | None = None) -> None"),
          "Collective. A gradient that is left out is not asked for. Those of weight and bias are\n"
          "sums over this rank's rows. `x` is needed for grad_weight, `weight` for grad_x.");
}

using Shares = ColumnGroups(const Heads&, int);

void bind_heads(nb::module_& m, const char* name, Shares* shares, const char* doc) {
  const std::string signature =
      "def " + std::string(name) +
      "(heads: int, kv_heads: int, size: int, world: int, *, interleaved: bool = False) -> "
      "list[list[tuple[int, int]]]";
  m.def(
      name,
      [shares](std::int64_t heads, std::int64_t kv_heads, std::int64_t size, int world,
               bool interleaved) {
        return groups_of(
            shares({.heads = heads, .kv_heads = kv_heads, .size = size, .interleaved = interleaved},
                   world));
      },
      nb::arg("heads"), nb::arg("kv_heads"), nb::arg("size"), nb::arg("world"), nb::kw_only(),
      nb::arg("interleaved") = false, nb::sig(signature.c_str()), doc);
}

}  // namespace

void bind_ulysses(nb::module_& m) {
  bind_heads(
      m, "qkv_columns", &qkv_columns,
      "The columns of each rank's heads in a weight of q, k and v: [all q | all k | all v],\n"
      "or with `interleaved` for each kv head [its q | k | v]. Pairs of a first column and\n"
      "a number of columns.");
  bind_heads(m, "head_columns", &head_columns,
             "The columns of each rank's heads alone, which the product after an attention reads.");
  m.def(
      "equal_columns",
      [](std::int64_t columns, int world) { return groups_of(equal_columns(columns, world)); },
      nb::arg("columns"), nb::arg("world"),
      nb::sig("def equal_columns(columns: int, world: int) -> list[list[tuple[int, int]]]"),
      "Equal shares of columns; the first ranks have one more where it is uneven.");
  nb::class_<UlyssesState>(m, "UlyssesState",
                           "The rows that UlyssesOutput.forward() keeps for backward().")
      .def(nb::init<>())
      .def_prop_ro("held_bytes", &UlyssesState::held_bytes);
  bind_layer<UlyssesQKV>(
      m, "UlyssesQKV",
      "Own rows by a whole weight; each rank gets all rows of its own columns. With all ranks'\n"
      "rows in one rank it has the same bits.");
  bind_layer<UlyssesOutput>(
      m, "UlyssesOutput",
      "All rows of own columns go to their owners, which multiply their rows by a whole weight.\n"
      "With all columns in one rank it has the same bits.");
}

}  // namespace plait::python
