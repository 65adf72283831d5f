#include "plait/ops.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "communicator.h"
#include "plait/gemm.h"
#include "plans.h"
#include "views.h"

namespace plait::python {
namespace {

using Blocking = void(const ConstTensorView&, const Weight&, const TensorView&, Communicator&,
                      const OpOptions&);

// One blocking call. `gathered` is refused by all operators but all_gather_matmul.
void bind_blocking(nb::module_& m, const char* name, Blocking* call, const char* doc) {
  m.def(
      name,
      [name, call](nb::handle x, nb::handle weight, nb::handle out, PyCommunicator& comm,
                   nb::handle bias, nb::handle gathered, Dtype wire,
                   const std::optional<Plan>& plan, const PlanSource* plans, int threads,
                   const std::string& backend) {
        const ConstTensorView rows = view_of(x, {name, "x"});
        const Weight by = weight_of(weight, {name, "weight"});
        const TensorView to = view_of(out, {name, "out"});
        const OpOptions options = {.wire = wire,
                                   .plan = plan,
                                   .plans = plans,
                                   .threads = threads,
                                   .backend = backend,
                                   .bias = view_of(bias, {name, "bias"}),
                                   .gathered = view_of(gathered, {name, "gathered"})};
        comm.use([&](Communicator& c) { call(rows, by, to, c, options); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::arg("comm"), nb::kw_only(),
      nb::arg("bias") = nb::none(), nb::arg("gathered") = nb::none(), nb::arg("wire") = Dtype::f32,
      nb::arg("plan") = nb::none(), nb::arg("plans") = nb::none(), nb::arg("threads") = 0,
      nb::arg("backend") = "", doc);
}

void bind_gemm(nb::module_& m) {
  nb::class_<Gemm>(m, "Gemm",
                   "A matrix product of this rank alone, for one thread at a time: rows of k\n"
                   "elements by a weight.")
      .def(
          "__init__",
          [](Gemm* self, std::int64_t rows, std::int64_t n, std::int64_t k, Dtype x, Dtype weight,
             Dtype out, int threads, const std::string& backend) {
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
                .x = {.view = view_of(x, {"Gemm.run", "x"}), .transposed = transposed},
                .weight = weight_of(weight, {"Gemm.run", "weight"}),
                .out = view_of(out, {"Gemm.run", "out"}),
                .bias = view_of(bias, {"Gemm.run", "bias"}),
                .accumulate = accumulate};
            unlocked([&] { gemm.run(call); });
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::kw_only(),
          nb::arg("transposed") = false, nb::arg("bias") = nb::none(),
          nb::arg("accumulate") = false,
          "Multiply. `transposed`: x is [k, m], as a weight's gradient has it.");
}

}  // namespace

void bind_ops(nb::module_& m) {
  bind_blocking(m, "matmul", &matmul, "out = x·weight, without communication.");
  bind_blocking(m, "matmul_all_reduce", &matmul_all_reduce,
                "out = the sum over ranks of x·weight, on every rank.");
  bind_blocking(m, "matmul_reduce_scatter", &matmul_reduce_scatter,
                "out = this rank's rows of the sum over ranks of x·weight.");
  bind_blocking(m, "matmul_all_gather", &matmul_all_gather,
                "out = all ranks' rows of x·weight, of which each rank has its own x.");
  bind_blocking(m, "all_gather_matmul", &all_gather_matmul,
                "out = all ranks' rows of x by this rank's weight; `gathered` takes all of x.");
  bind_blocking(m, "reduce_scatter_matmul", &reduce_scatter_matmul,
                "out = this rank's rows of (the sum over ranks of x)·weight.");
  bind_blocking(m, "all_reduce_matmul", &all_reduce_matmul,
                "out = (the sum over ranks of x)·weight, on every rank.");
  bind_gemm(m);
}

}  // namespace plait::python
