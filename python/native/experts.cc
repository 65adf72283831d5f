#include "plait/experts.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "communicator.h"
#include "named.h"
#include "plans.h"
#include "polled.h"
#include "torch_tensors.h"
#include "views.h"

namespace plait::python {
namespace {

constexpr const char* kOp = "expert_parallel_mlp";

// Addresses of tensors whose elements have no Dtype, as those of ids are, or none.
template <class T>
T* memory_at(std::uintptr_t number) {
  return reinterpret_cast<T*>(number);  // NOLINT(performance-no-int-to-ptr)
}

template <class T>
std::span<T> memory_at(std::uintptr_t number, std::int64_t count) {
  if (number == 0) return {};
  return {memory_at<T>(number), static_cast<std::size_t>(count)};
}

// Weights of both products, and their biases: a stack of own experts' each, or None.
using Stacks = nb::typed<nb::tuple, nb::object, nb::ellipsis>;

// The views of a stack of tensors, one below another; none of None.
template <class View>
std::vector<View> split(nb::handle stack, std::int64_t count, const char* name) {
  std::vector<View> views;
  if (stack.is_none()) return views;
  const auto all = view_of(stack, {kOp, name});
  for (std::int64_t i = 0; i < count; ++i)
    views.push_back(all.row_range(all.rows / count * i, all.rows / count * (i + 1)));
  return views;
}

// The weights and biases of a call, which are kept while it runs.
struct Operands {
  std::vector<Weight> up, down;
  std::vector<ConstTensorView> up_biases, down_biases;
};

// A layer takes turns with the other calls of its communicator.
class PyExperts {
 public:
  PyExperts(const ExpertsDesc& desc, WeightLayout layout, PyCommunicator& comm,
            const ExpertsOptions& options)
      : comm_(comm),
        layout_(layout),
        layer_(comm.use([&](Communicator& c) { return ExpertParallelMLP(desc, c, options); })) {
    own_ = std::ssize(layer_.experts_of(comm.get().rank()));
  }

  // `stacks`: up, down and their biases, which may be None. Weights are a stack, or packed ones.
  Operands operands(const Stacks& stacks) const {
    return {.up = weights(stacks[0], "gate_up"),
            .down = weights(stacks[1], "down"),
            .up_biases = split<ConstTensorView>(stacks[2], own_, "gate_up_bias"),
            .down_biases = split<ConstTensorView>(stacks[3], own_, "down_bias")};
  }

  ExpertsForward call(nb::handle x, std::uintptr_t ids, std::uintptr_t weights,
                      const Operands& operands) const {
    const ConstTensorView rows = const_view_of(x, {kOp, "hidden"});
    const std::int64_t slots = rows.rows * layer_.desc().top;
    return {.x = rows,
            .ids = memory_at<const std::int64_t>(ids, slots),
            .weights = memory_at<const float>(weights, slots),
            .up = operands.up,
            .down = operands.down,
            .up_biases = operands.up_biases,
            .down_biases = operands.down_biases,
            .out = {}};
  }

  const ExpertsDesc& desc() const { return layer_.desc(); }
  Schedule schedule() const { return layer_.schedule(); }

  // How many rows this rank has multiplied, and how many it has sent to each rank.
  using Counts = std::pair<std::int64_t, std::vector<std::int64_t>>;
  Counts forward(const ExpertsForward& call) {
    return comm_.use([&](Communicator&) {
      layer_.forward(call);
      const std::vector<std::int64_t>& its = layer_.rows().of_experts;
      return std::pair(std::accumulate(its.begin(), its.end(), std::int64_t{0}),
                       layer_.rows().to_ranks);
    });
  }

  // `grads`: of the stacks, as these lie; None: not wanted.
  void backward(ExpertsBackward& call, const Stacks& grads) {
    const std::vector<TensorView> up = split<TensorView>(grads[0], own_, "gate_up");
    const std::vector<TensorView> down = split<TensorView>(grads[1], own_, "down");
    const std::vector<TensorView> up_biases = split<TensorView>(grads[2], own_, "gate_up_bias");
    const std::vector<TensorView> down_biases = split<TensorView>(grads[3], own_, "down_bias");
    call.grad_up = up;
    call.grad_down = down;
    call.grad_up_biases = up_biases;
    call.grad_down_biases = down_biases;
    comm_.use([&](Communicator&) { layer_.backward(call); });
  }

 private:
  std::vector<Weight> weights(nb::handle stack, const char* name) const {
    std::vector<Weight> weights;
    if (nb::isinstance<nb::list>(stack)) {
      for (const nb::handle one : stack) weights.push_back(weight_of(one, {kOp, name}));
      return weights;
    }
    for (const ConstTensorView& one : split<ConstTensorView>(stack, own_, name))
      weights.emplace_back(WeightView{.view = one, .layout = layout_});
    return weights;
  }

  PyCommunicator& comm_;
  WeightLayout layout_;
  std::int64_t own_ = 0;
  ExpertParallelMLP layer_;
};

// Calls of a layer by weights that are viewed once, as the tokens of a decode make them. `stacks`
// are kept here, and the tensors that they view by the caller.
class PyExpertsByStacks {
 public:
  PyExpertsByStacks(PyExperts& layer, Stacks stacks)
      : layer_(layer), stacks_(std::move(stacks)), operands_(layer.operands(stacks_)) {}

  // The result and the counts, or None for operands that are served, or refused, in Python.
  nb::object multiply(const TorchTensors& tensors, nb::handle x, nb::handle ids,
                      nb::handle weights) {
    const ExpertsDesc& desc = layer_.desc();
    const std::optional<TorchTensors::Rows> rows = tensors.all_rows(x);
    if (!rows || rows->view.dtype != desc.dtype || rows->view.cols != desc.hidden)
      return nb::none();
    const std::optional<std::span<const std::int64_t>> slots = tensors.numbers(ids);
    const std::optional<TorchTensors::Rows> factors = tensors.all_rows(weights);
    const bool fits = slots && factors && std::ssize(*slots) == rows->view.rows * desc.top &&
                      factors->view.rows == rows->view.rows && factors->view.cols == desc.top &&
                      factors->view.dtype == Dtype::f32 &&
                      (factors->view.rows == 1 || factors->view.row_stride == desc.top);
    if (!fits) return nb::none();
    std::vector<std::int64_t> sizes = rows->sizes;
    sizes.push_back(desc.hidden);
    const std::optional<TorchTensors::Made> out = tensors.make(x, sizes);
    if (!out) return nb::none();
    const PyExperts::Counts counts =
        layer_.forward({.x = rows->view,
                        .ids = *slots,
                        .weights = {static_cast<const float*>(factors->view.data), slots->size()},
                        .up = operands_.up,
                        .down = operands_.down,
                        .up_biases = operands_.up_biases,
                        .down_biases = operands_.down_biases,
                        .out = out->rows});
    return nb::make_tuple(out->tensor, counts);
  }

 private:
  PyExperts& layer_;
  Stacks stacks_;
  Operands operands_;
};

ExpertActivation activation_of(std::string_view named) {
  for (const auto one :
       {ExpertActivation::swiglu, ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    if (name(one) == named) return one;
  }
  throw nb::value_error(("no activation is called " + std::string(named)).c_str());
}

}  // namespace

void bind_experts(nb::module_& m) {
  nb::class_<PyExperts>(m, "_Experts")
      .def(
          "__init__",
          [](PyExperts* self, PyCommunicator& comm, std::int64_t hidden, std::int64_t inner,
             std::int64_t experts, std::int64_t top, std::int64_t parts, Named<Dtype> dtype,
             Named<Dtype> wire, bool is_packed, Named<WeightLayout> layout,
             const std::string& activation, float alpha, std::optional<float> limit, float added,
             bool weighted, std::vector<int> ranks, const PlanSource* plans, bool replicated,
             int threads, std::string backend) {
            ExpertsDesc desc = {
                .hidden = hidden,
                .inner = inner,
                .experts = experts,
                .top = top,
                .dtype = dtype,
                .out = dtype,
                .wire = wire,
                .weight = {.dtype = dtype, .is_packed = is_packed},
                .activation = activation_of(activation),
                .alpha = alpha,
                .added = added,
                .weights_at = weighted ? ExpertWeightsAt::activation : ExpertWeightsAt::combine,
                .parts = parts,
                .ranks = std::move(ranks)};
            if (limit) desc.limit = *limit;
            new (self) PyExperts(desc, layout, comm,
                                 {.plans = plans,
                                  .replicated = replicated,
                                  .threads = threads,
                                  .backend = std::move(backend)});
          },
          nb::arg("comm"), nb::kw_only(), nb::arg("hidden"), nb::arg("inner"), nb::arg("experts"),
          nb::arg("top"), nb::arg("parts"), nb::arg("dtype"), nb::arg("wire"), nb::arg("is_packed"),
          nb::arg("layout"), nb::arg("activation"), nb::arg("alpha"), nb::arg("limit").none(),
          nb::arg("added"), nb::arg("weighted"), nb::arg("ranks"), nb::arg("plans").none(),
          nb::arg("replicated"), nb::arg("threads"), nb::arg("backend"), nb::keep_alive<1, 2>())
      .def_prop_ro("schedule", &PyExperts::schedule)
      .def(
          "forward",
          [](PyExperts& self, nb::handle x, std::uintptr_t ids, std::uintptr_t weights,
             const Stacks& stacks, nb::handle out, bool gradients, nb::handle beside) {
            const Operands operands = self.operands(stacks);
            ExpertsForward call = self.call(x, ids, weights, operands);
            call.out = view_of(out, {kOp, "out"});
            call.gradients = gradients;
            // Callable while `beside` runs.
            const std::function<void()>* poll_step = nullptr;
            nb::object poll = nb::none();
            if (!beside.is_none()) {
              poll = nb::cpp_function([&poll_step] {
                const nb::gil_scoped_release free;
                if (poll_step != nullptr) (*poll_step)();
              });
            }
            return Polled(beside).run(
                [&](const auto& hook) {
                  if (hook) {
                    call.beside = [&](const std::function<void()>& step) {
                      poll_step = &step;
                      hook();
                      poll_step = nullptr;
                    };
                  }
                  return self.forward(call);
                },
                poll);
          },
          nb::arg("x"), nb::arg("ids"), nb::arg("weights"), nb::arg("stacks"), nb::arg("out"),
          nb::arg("gradients"), nb::arg("beside") = nb::none())
      .def(
          "backward",
          [](PyExperts& self, nb::handle x, std::uintptr_t ids, std::uintptr_t weights,
             const Stacks& stacks, nb::handle grad_out, nb::handle grad_x,
             std::uintptr_t grad_weights, const Stacks& grads) {
            const Operands operands = self.operands(stacks);
            ExpertsBackward call = {.forward = self.call(x, ids, weights, operands),
                                    .grad_out = const_view_of(grad_out, {kOp, "grad"}),
                                    .grad_x = view_of(grad_x, {kOp, "grad_x"})};
            call.grad_weights = memory_at<float>(grad_weights, std::ssize(call.forward.ids));
            self.backward(call, grads);
          },
          nb::arg("x"), nb::arg("ids"), nb::arg("weights"), nb::arg("stacks"), nb::arg("grad_out"),
          nb::arg("grad_x").none(), nb::arg("grad_weights"), nb::arg("grads"));
  nb::class_<PyExpertsByStacks>(m, "_ExpertsByStacks")
      .def(nb::init<PyExperts&, Stacks>(), nb::arg("layer"), nb::arg("stacks"),
           nb::keep_alive<1, 2>())
      .def("multiply", &PyExpertsByStacks::multiply, nb::arg("tensors"), nb::arg("x"),
           nb::arg("ids"), nb::arg("weights"),
           nb::sig("def multiply(self, tensors: _TorchTensors, x: object, ids: object, "
                   "weights: object) -> typing.Any"));
}

}  // namespace plait::python
