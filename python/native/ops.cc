#include "plait/ops.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "communicator.h"
#include "named.h"
#include "plait/gemm.h"
#include "plans.h"
#include "polled.h"
#include "views.h"

namespace plait::python {
namespace {

// The keyword arguments of operators' calls.
struct How {
  Named<Dtype> wire;
  const std::optional<Named<Plan>>& plan;
  const PlanSource* plans;
  std::int64_t whole_size;
  int threads;
  const std::string& backend;
};

OpOptions options_of(const How& how) {
  return {.wire = wire_of(how.wire),
          .plan = how.plan,
          .plans = how.plans,
          .whole_size = how.whole_size,
          .threads = how.threads,
          .backend = how.backend};
}

using Blocking = void(const ConstTensorView&, const Weight&, const TensorView&, Communicator&,
                      const OpOptions&);

// One blocking call. `gathered` is refused by all operators but all_gather_matmul.
void bind_blocking(nb::module_& m, const char* name, Blocking* call, const char* doc) {
  const std::string signature =
      "def " + std::string(name) +
      "(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, "
      "comm: Communicator, *, bias: Array | TensorView | None = None, "
      "gathered: Array | TensorView | None = None, wire: Dtype | str | None = "
      "plait._native.Dtype.f32, "
      "plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, "
      "threads: int = 0, backend: str = '', stream: object | None = None, "
      "poll: collections.abc.Callable[[], object] | None = None) -> None";
  m.def(
      name,
      [name, call](nb::handle x, nb::handle weight, nb::handle out, PyCommunicator& comm,
                   nb::handle bias, nb::handle gathered, Named<Dtype> wire,
                   const std::optional<Named<Plan>>& plan, const PlanSource* plans,
                   std::int64_t whole_size, int threads, const std::string& backend,
                   nb::handle stream, nb::handle poll) {
        const ConstTensorView rows = const_view_of(x, {name, "x"});
        const Weight by = weight_of(weight, {name, "weight"});
        const TensorView to = view_of(out, {name, "out"});
        OpOptions options = options_of({wire, plan, plans, whole_size, threads, backend});
        options.bias = const_view_of(bias, {name, "bias"});
        options.gathered = view_of(gathered, {name, "gathered"});
        options.stream = stream_of(stream, x, rows, {name, "stream"});
        Polled(poll).run([&](PollHook hook) {
          options.poll = std::move(hook);
          comm.use([&](Communicator& c) { call(rows, by, to, c, options); });
        });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::arg("comm"), nb::kw_only(),
      nb::arg("bias") = nb::none(), nb::arg("gathered") = nb::none(),
      nb::arg("wire").none() = Dtype::f32, nb::arg("plan") = nb::none(),
      nb::arg("plans") = nb::none(), nb::arg("whole_size") = -1, nb::arg("threads") = 0,
      nb::arg("backend") = "", nb::arg("stream") = nb::none(), nb::arg("poll") = nb::none(),
      nb::sig(signature.c_str()), doc);
}

// An operator takes turns with the other calls of its communicator.
class PyOp {
 public:
  PyOp(const OpDesc& desc, PyCommunicator& comm, const OpOptions& options)
      : comm_(comm), op_(comm.use([&](Communicator& c) { return prepare(desc, c, options); })) {}

  const Op& op() const { return op_; }
  SumTree sum_tree() const {
    return comm_.use([&](Communicator&) { return op_.sum_tree(); });
  }
  void run(const OpCall& call) {
    comm_.use([&](Communicator&) { op_.run(call); });
  }

 private:
  PyCommunicator& comm_;
  Op op_;
};

void bind_desc(nb::module_& m) {
  nb::class_<OpDesc>(m, "OpDesc",
                     "The description of an operator without its operands: m rows of all ranks\n"
                     "together; n and k of this rank's weight.")
      .def(
          "__init__",
          [](OpDesc* self, Named<Operator> op, std::int64_t rows, std::int64_t n, std::int64_t k,
             Named<Dtype> given, const std::optional<WeightKind>& weight,
             std::optional<Named<Dtype>> out, bool gathered, const std::string& device) {
            const Dtype x = given;
            new (self) OpDesc{.op = op,
                              .m = rows,
                              .n = n,
                              .k = k,
                              .x = x,
                              .weight = weight.value_or(WeightKind{.dtype = x}),
                              .out = out ? *out : x,
                              .gathered = gathered,
                              .device = device_called(device, {"OpDesc", "device"})};
          },
          nb::arg("op"), nb::kw_only(), nb::arg("m"), nb::arg("n"), nb::arg("k"), nb::arg("x"),
          nb::arg("weight") = nb::none(), nb::arg("out") = nb::none(), nb::arg("gathered") = false,
          nb::arg("device") = "cpu",
          "Weight and out are of the dtype of x unless they are named. All operands of a call are\n"
          "on `device`: \"cpu\", or a GPU such as \"cuda:0\".")
      .def_ro("op", &OpDesc::op)
      .def_ro("m", &OpDesc::m)
      .def_ro("n", &OpDesc::n)
      .def_ro("k", &OpDesc::k)
      .def_ro("x", &OpDesc::x)
      .def_ro("weight", &OpDesc::weight)
      .def_ro("out", &OpDesc::out)
      .def_ro("gathered", &OpDesc::gathered)
      .def_prop_ro("device", [](const OpDesc& desc) { return name(desc.device); });
}

void bind_sum_tree(nb::module_& m) {
  nb::class_<SumTree>(
      m, "SumTree",
      "True if sums have the bits of one rank that has all k. Where they have not,\n"
      "`refusal` says why, and they are the same in every plan, transport and run,\n"
      "but differ between worlds.")
      .def_prop_ro("refusal",
                   [](const SumTree& tree) {
                     return tree ? std::nullopt : std::optional<std::string>(tree.refusal);
                   })
      .def("__bool__", [](const SumTree& tree) { return static_cast<bool>(tree); })
      .def("__repr__", [](const SumTree& tree) {
        return tree ? std::string("<plait.SumTree, of all k>")
                    : "<plait.SumTree, of ranks' sums: " + std::string(tree.refusal) + ">";
      });
  m.def(
      "sum_tree",
      [](const OpDesc& desc, int world, Named<Dtype> wire) { return sum_tree(desc, world, wire); },
      nb::arg("desc"), nb::arg("world"), nb::arg("wire") = Dtype::f32,
      "Not collective. Say whether an operator's sums have the bits of one rank that has all k, "
      "if\n"
      "each of `world` ranks has a share of k like this rank's.");
}

void bind_prepared(nb::module_& m) {
  bind_desc(m);
  bind_sum_tree(m);
  nb::class_<PyOp>(m, "Op",
                   "An operator ready to run many times, with its memory, its mailbox and its\n"
                   "plan, so that a call negotiates nothing. Each run brings its weight. See\n"
                   "prepare().")
      .def_prop_ro("desc", [](const PyOp& self) { return self.op().desc(); })
      .def_prop_ro("plan", [](const PyOp& self) { return self.op().plan(); })
      .def_prop_ro(
          "held_bytes", [](const PyOp& self) { return self.op().held_bytes(); },
          "Bytes that it keeps from call to call, without the mailbox.")
      .def("sum_tree", &PyOp::sum_tree,
           "Collective. Say whether its sums have the bits of one rank that has all k.")
      .def(
          "run",
          [](PyOp& self, nb::handle x, nb::handle weight, nb::handle out, nb::handle bias,
             nb::handle gathered, nb::handle stream, nb::handle poll) {
            const std::string_view op = name(self.op().desc().op);
            OpCall call = {.x = const_view_of(x, {op, "x"}),
                           .weight = weight_of(weight, {op, "weight"}),
                           .out = view_of(out, {op, "out"}),
                           .bias = const_view_of(bias, {op, "bias"}),
                           .gathered = view_of(gathered, {op, "gathered"})};
            call.stream = stream_of(stream, x, call.x, {op, "stream"});
            Polled(poll).run([&](PollHook hook) {
              call.poll = std::move(hook);
              self.run(call);
            });
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::kw_only(),
          nb::arg("bias") = nb::none(), nb::arg("gathered") = nb::none(),
          nb::arg("stream") = nb::none(), nb::arg("poll") = nb::none(),
          nb::sig("def run(self, x: Array | TensorView, weight: PackedWeight | WeightView, "
                  "out: Array | TensorView, *, bias: Array | TensorView | None = None, "
                  "gathered: Array | TensorView | None = None, stream: object | None = None, "
                  "poll: collections.abc.Callable[[], object] | None = None) -> None"),
          "Collective. Takes any number of rows up to the description's.");
  m.def(
      "prepare",
      [](const OpDesc& desc, PyCommunicator& comm, Named<Dtype> wire,
         const std::optional<Named<Plan>>& plan, const PlanSource* plans, std::int64_t whole_size,
         int threads, const std::string& backend) {
        return std::make_unique<PyOp>(
            desc, comm, options_of({wire, plan, plans, whole_size, threads, backend}));
      },
      nb::arg("desc"), nb::arg("comm"), nb::kw_only(), nb::arg("wire").none() = Dtype::f32,
      nb::arg("plan") = nb::none(), nb::arg("plans") = nb::none(), nb::arg("whole_size") = -1,
      nb::arg("threads") = 0, nb::arg("backend") = "", nb::keep_alive<0, 2>(),
      nb::keep_alive<0, 5>(), "Collective. Make an operator ready to run many times.");
}

void bind_gemm(nb::module_& m) {
  nb::class_<Gemm>(m, "Gemm",
                   "A matrix product of this rank alone, for one thread at a time: rows of k\n"
                   "elements by a weight.")
      .def(
          "__init__",
          [](Gemm* self, std::int64_t rows, std::int64_t n, std::int64_t k, Named<Dtype> x,
             Named<Dtype> weight, Named<Dtype> out, int threads, const std::string& backend) {
            const GemmDesc desc = {.m = rows, .n = n, .k = k, .x = x, .weight = weight, .out = out};
            unlocked([&] {  // which may generate code
              new (self) Gemm(select_gemm(desc, {.backend = backend, .threads = threads}));
            });
          },
          nb::arg("m"), nb::arg("n"), nb::arg("k"), nb::kw_only(), nb::arg("x"), nb::arg("weight"),
          nb::arg("out"), nb::arg("threads") = 0, nb::arg("backend") = "")
      .def_prop_ro("backend", [](const Gemm& gemm) { return std::string(gemm.backend()); })
      .def(
          "run",
          [](Gemm& gemm, nb::handle x, nb::handle weight, nb::handle out, bool transposed,
             nb::handle bias, bool accumulate) {
            const GemmCall call = {
                .x = {.view = const_view_of(x, {"Gemm.run", "x"}), .transposed = transposed},
                .weight = weight_of(weight, {"Gemm.run", "weight"}),
                .out = view_of(out, {"Gemm.run", "out"}),
                .bias = const_view_of(bias, {"Gemm.run", "bias"}),
                .accumulate = accumulate};
            unlocked([&] { gemm.run(call); });
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::kw_only(),
          nb::arg("transposed") = false, nb::arg("bias") = nb::none(),
          nb::arg("accumulate") = false,
          nb::sig("def run(self, x: Array | TensorView, weight: PackedWeight | WeightView, "
                  "out: Array | TensorView, *, transposed: bool = False, "
                  "bias: Array | TensorView | None = None, accumulate: bool = False) -> None"),
          "Multiply. `transposed`: x is [k, m], as a weight's gradient has it.");
}

}  // namespace

void bind_ops(nb::module_& m) {
  bind_blocking(m, "matmul", &matmul,
                "out = x·weight, without communication: what the others are compared with.");
  bind_blocking(
      m, "matmul_all_reduce", &matmul_all_reduce,
      "out = the sum over ranks of x·weight, on every rank.\n\n"
      "x is [m, k_r], weight [k_r, n], out [m, n]. All ranks make the call, with the same\n"
      "m, dtypes, wire and plan; every plan gives the same bits. With `plans`, ranks exchange\n"
      "their k_r in each call, unless all give their sum as `whole_size`. Other operators of\n"
      "shares take it too.");
  bind_blocking(m, "matmul_reduce_scatter", &matmul_reduce_scatter,
                "out = this rank's rows of the sum over ranks of x·weight.\n\n"
                "x is [m, k_r], weight [k_r, n]; balanced_shard() says which rows are a rank's.");
  bind_blocking(m, "matmul_all_gather", &matmul_all_gather,
                "out = all ranks' rows of x·weight, of which each rank has its own x.\n\n"
                "x is this rank's rows [m_r, k], weight [k, n], out [m, n].");
  bind_blocking(m, "all_gather_matmul", &all_gather_matmul,
                "out = all ranks' rows of x by this rank's weight; `gathered` takes all of x.\n\n"
                "x is this rank's rows [m_r, k], weight [k, n_r], out [m, n_r], gathered [m, k].");
  bind_blocking(m, "reduce_scatter_matmul", &reduce_scatter_matmul,
                "out = this rank's rows of (the sum over ranks of x)·weight.\n\n"
                "x is [m, k], weight [k, n].");
  bind_blocking(m, "all_reduce_matmul", &all_reduce_matmul,
                "out = (the sum over ranks of x)·weight, on every rank.\n\n"
                "x is [m, k], weight [k, n], out [m, n].");
  bind_prepared(m);
  bind_gemm(m);
}

}  // namespace plait::python
