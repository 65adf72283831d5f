// Operators of tensors of torch, as plait.torch calls them where nothing else has to be done.
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "communicator.h"
#include "named.h"
#include "plait/collectives.h"
#include "plait/operator.h"
#include "plait/ops.h"
#include "plait/packed_weight.h"
#include "tally.h"
#include "torch_tensors.h"

namespace plait::python {
namespace {

using Function = void(const ConstTensorView&, const Weight&, const TensorView&, Communicator&,
                      const OpOptions&);

// Indexed by Operator.
constexpr std::array<Function*, kOperators> kFunctions = {
    &matmul,
    &matmul_all_reduce,
    &matmul_reduce_scatter,
    &matmul_all_gather,
    &all_gather_matmul,
    &reduce_scatter_matmul,
    &all_reduce_matmul,
};

// The operands of a call, all of one dtype.
struct Operands {
  TensorView x;
  TensorView weight;
  std::optional<TensorView> bias;
  bool turned = false;

  std::int64_t n() const { return turned ? weight.cols : weight.rows; }
  std::int64_t k() const { return turned ? weight.rows : weight.cols; }

  bool fit() const {
    return weight.dtype == x.dtype && x.cols == k() &&
           (!bias || (bias->dtype == x.dtype && bias->cols == n()));
  }

  WeightView weight_view() const {
    return {.view = weight, .layout = turned ? WeightLayout::in_out : WeightLayout::out_in};
  }
};

// The calls of one operator, with one communicator and one set of options.
class TorchOperator {
 public:
  TorchOperator(const TorchTensors& tensors, Operator op, nb::object comm, nb::object plans,
                OpOptions options, nb::object samples)
      : tensors_(tensors),
        op_(op),
        comm_(nb::cast<PyCommunicator&>(comm)),
        options_(std::move(options)),
        comm_object_(std::move(comm)),
        plans_object_(std::move(plans)),
        samples_(std::move(samples)) {
    options_.plans = &nb::cast<const PlanSource&>(plans_object_);
  }

  // The result, or None for operands that are served, or refused, in Python.
  nb::object run(nb::handle x, nb::handle weight, nb::handle bias, bool turned, std::int64_t rows) {
    const std::optional<Operands> operands = read(x, weight, bias, turned);
    return operands ? multiply(x, *operands, rows) : nb::none();
  }

  // Does what run() does, or returns NotImplemented where the result needs a gradient.
  nb::object call(nb::handle x, nb::handle weight, nb::handle bias, bool turned,
                  std::int64_t rows) {
    const std::optional<Operands> operands = read(x, weight, bias, turned);
    if (!operands) return nb::none();
    if (tensors_.is_grad_enabled() &&
        (tensors_.requires_grad(x) || tensors_.requires_grad(weight) ||
         tensors_.requires_grad(bias)))
      return nb::borrow(Py_NotImplemented);
    return multiply(x, *operands, rows);
  }

  // Multiplies all rows of x by a packed weight. `whole_size`: see OpOptions. None where x or the
  // bias can't be viewed as they are.
  nb::object run_packed(nb::handle x, const PackedWeight& weight, nb::handle bias,
                        std::int64_t whole_size) {
    std::optional<TorchTensors::Rows> rows = tensors_.all_rows(x);
    if (!rows) return nb::none();
    OpOptions options = options_;
    options.whole_size = whole_size;
    if (!bias.is_none()) {
      const std::optional<TensorView> added = tensors_.rows(bias, 1);
      if (!added) return nb::none();
      options.bias = *added;
    }
    rows->sizes.push_back(weight.n());
    std::optional<TorchTensors::Made> out = tensors_.make(x, rows->sizes);
    if (!out) return nb::none();
    const auto call = [&] {
      comm_.use([&](Communicator& comm) {
        (*kFunctions[static_cast<std::size_t>(op_)])(rows->view, weight, out->rows, comm, options);
      });
    };
    if (traits_of(op_).communicates()) {
      make_call(
          {rows->view.rows, weight.n(), weight.k(), static_cast<std::int64_t>(rows->view.dtype)},
          call);
    } else {  // there is nothing to plan, nor to record
      options.plans = nullptr;
      call();
    }
    return std::move(out->tensor);
  }

  void forget_calls() { tally_.clear(); }

 private:
  std::optional<Operands> read(nb::handle x, nb::handle weight, nb::handle bias,
                               bool turned) const {
    const std::optional<TensorView> rows = tensors_.rows(x, 2);
    if (!rows) return std::nullopt;
    const std::optional<TensorView> by = tensors_.rows(weight, 2);
    if (!by) return std::nullopt;
    Operands operands{.x = *rows, .weight = *by, .bias = {}, .turned = turned};
    if (!bias.is_none()) {
      operands.bias = tensors_.rows(bias, 1);
      if (!operands.bias) return std::nullopt;
    }
    return operands.fit() ? std::optional(operands) : std::nullopt;
  }

  // `rows` of all ranks together; -1 where each has as many as this one.
  std::int64_t out_rows(std::int64_t own, std::int64_t rows) const {
    const OperatorTraits& traits = traits_of(op_);
    if (!traits.has_own_x() && !traits.has_own_out()) return own;
    if (traits.has_own_x()) return rows < 0 ? own * comm_.get().world() : rows;
    return share_of(own);
  }

  // This rank's share of rows.
  std::int64_t share_of(std::int64_t rows) const {
    const Communicator& comm = comm_.get();
    const Shard shard = balanced_shard(static_cast<std::size_t>(rows), comm.rank(), comm.world());
    return static_cast<std::int64_t>(shard.count);
  }

  nb::object multiply(nb::handle x, const Operands& operands, std::int64_t rows) {
    // A wrong count may be one that no memory holds.
    if (rows >= 0 && share_of(rows) != operands.x.rows) return nb::none();
    const std::int64_t n = operands.n();
    const std::array<std::int64_t, 2> sizes = {out_rows(operands.x.rows, rows), n};
    std::optional<TorchTensors::Made> out = tensors_.make(x, sizes);
    if (!out) return nb::none();
    make_call({operands.x.rows, n, operands.k(), static_cast<std::int64_t>(operands.x.dtype)}, [&] {
      OpOptions options = options_;
      if (operands.bias) options.bias = *operands.bias;
      comm_.use([&](Communicator& comm) {
        (*kFunctions[static_cast<std::size_t>(op_)])(operands.x, operands.weight_view(), out->rows,
                                                     comm, options);
      });
    });
    return std::move(out->tensor);
  }

  template <class Call>
  void make_call(const Tally::Size& size, const Call& call) {
    if (tally_.is_due(size))
      samples_.attr("trace")(comm_object_, plans_object_, nb::cpp_function(call));
    else
      call();
  }

  const TorchTensors& tensors_;
  Operator op_;
  PyCommunicator& comm_;
  OpOptions options_;
  nb::object comm_object_;
  nb::object plans_object_;
  nb::object samples_;
  Tally tally_;
};

constexpr const char* kCallDoc =
    "Multiply, and return a new tensor; None where the operands are not what it takes: plain\n"
    "matrices of one dtype on the CPU, with rows whose elements lie side by side.";

}  // namespace

void bind_torch(nb::module_& m) {
  nb::class_<TorchTensors>(m, "_TorchTensors",
                           "Reads tensors of torch by the functions of their type.")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object>(), nb::arg("tensor"),
           nb::arg("parameter"), nb::arg("is_grad_enabled"), nb::arg("empty_strided") = nb::none())
      .def_prop_ro("has_table", &TorchTensors::has_table,
                   "True if torch's type has the functions; otherwise nothing is read.");
  const auto call_signature = [](const char* name) {
    return std::string("def ") + name +
           "(self, x: object, weight: object, bias: object | None, turned: bool, rows: int) -> "
           "typing.Any";
  };
  nb::class_<TorchOperator>(m, "_TorchOperator", "One operator's calls of tensors of torch.")
      .def(
          "__init__",
          [](TorchOperator* self, const TorchTensors& tensors, Operator op, nb::object comm,
             nb::object plans, nb::object samples, Named<Dtype> wire, int threads,
             std::string backend) {
            new (self) TorchOperator(
                tensors, op, std::move(comm), std::move(plans),
                {.wire = wire_of(wire), .threads = threads, .backend = std::move(backend)},
                std::move(samples));
          },
          nb::arg("tensors"), nb::arg("op"), nb::arg("comm"), nb::arg("plans"), nb::arg("samples"),
          nb::kw_only(), nb::arg("wire").none(), nb::arg("threads"), nb::arg("backend"),
          nb::keep_alive<1, 2>(),
          nb::sig("def __init__(self, tensors: _TorchTensors, op: Operator, comm: Communicator, "
                  "plans: PlanSource, samples: object, *, wire: Dtype | str | None, threads: int, "
                  "backend: str) -> None"),
          "`samples` has trace(comm, plans, call), which makes a call and keeps its trace.")
      .def("run", &TorchOperator::run, nb::arg("x").none(), nb::arg("weight").none(),
           nb::arg("bias").none(), nb::arg("turned"), nb::arg("rows"),
           nb::sig(call_signature("run").c_str()), kCallDoc)
      .def("call", &TorchOperator::call, nb::arg("x").none(), nb::arg("weight").none(),
           nb::arg("bias").none(), nb::arg("turned"), nb::arg("rows"),
           nb::sig(call_signature("call").c_str()),
           "Do the same, or return NotImplemented where autograd has to see the result.")
      .def("run_packed", &TorchOperator::run_packed, nb::arg("x").none(), nb::arg("weight"),
           nb::arg("bias").none(), nb::arg("whole_size"),
           nb::sig("def run_packed(self, x: object, weight: PackedWeight, bias: object | None, "
                   "whole_size: int) -> typing.Any"),
           "Multiply by a packed weight, and return a new tensor; dimensions of x before the last\n"
           "one are rows. None where x or the bias can't be viewed as they are.")
      .def("forget_calls", &TorchOperator::forget_calls, "Start counting anew which to trace.");
}

}  // namespace plait::python
