#include "plait/columns.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "communicator.h"
#include "named.h"
#include "plans.h"
#include "views.h"

namespace plait::python {

void bind_columns(nb::module_& m) {
  constexpr const char* kGather = "all_gather_columns";
  constexpr const char* kProduct = "matmul_all_gather_columns";
  constexpr const char* kGatherFirst = "all_gather_columns_matmul";
  m.def(
      kGather,
      [](nb::handle mine, nb::handle all, PyCommunicator& comm,
         const std::vector<std::int64_t>& counts) {
        const ConstTensorView own = const_view_of(mine, {kGather, "mine"});
        const TensorView to = view_of(all, {kGather, "all"});
        comm.use([&](Communicator& c) { all_gather_columns(own, to, c, counts); });
      },
      nb::arg("mine"), nb::arg("all"), nb::arg("comm"), nb::kw_only(),
      nb::arg("counts") = std::vector<std::int64_t>(),
      nb::sig("def all_gather_columns(mine: Array | TensorView, all: Array | TensorView, "
              "comm: Communicator, *, counts: collections.abc.Sequence[int] = ()) -> None"),
      "Bring the columns of all ranks to their places in a matrix that every rank gets.\n\n"
      "`mine` is [m, n_r], and `all` [m, the sum of all n_r]. `counts` is every rank's n_r; "
      "without\n"
      "it the columns are balanced.");
  m.def(
      kProduct,
      [](nb::handle x, nb::handle weight, nb::handle out, PyCommunicator& comm,
         const std::vector<std::int64_t>& counts, nb::handle bias, int threads,
         const std::string& backend, const std::optional<Named<Plan>>& plan,
         const PlanSource* plans) {
        const ConstTensorView rows = const_view_of(x, {kProduct, "x"});
        const Weight by = weight_of(weight, {kProduct, "weight"});
        const TensorView to = view_of(out, {kProduct, "out"});
        ColumnsOptions options = {.counts = counts,
                                  .bias = const_view_of(bias, {kProduct, "bias"}),
                                  .threads = threads,
                                  .backend = backend,
                                  .plans = plans};
        if (plan) options.plan = *plan;
        comm.use([&](Communicator& c) { matmul_all_gather_columns(rows, by, to, c, options); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::arg("comm"), nb::kw_only(),
      nb::arg("counts") = std::vector<std::int64_t>(), nb::arg("bias") = nb::none(),
      nb::arg("threads") = 0, nb::arg("backend") = "", nb::arg("plan") = nb::none(),
      nb::arg("plans") = nb::none(),
      nb::sig("def matmul_all_gather_columns(x: Array | TensorView, weight: PackedWeight | "
              "WeightView, out: Array | TensorView, comm: Communicator, *, "
              "counts: collections.abc.Sequence[int] = (), bias: Array | TensorView | None = None, "
              "threads: int = 0, backend: str = '', plan: Plan | str | None = None, "
              "plans: PlanSource | None = None) -> None"),
      "out = all ranks' columns of x·weight, of which each rank has a weight for its own.\n\n"
      "x is [m, k], the same on all ranks, weight [k, n_r], out [m, the sum of all n_r]. Columns\n"
      "travel to their places while the next ones are multiplied. `counts` is every rank's n_r;\n"
      "without it the columns are balanced. `bias` is of this rank's columns. Without `plan` the\n"
      "call follows that of `plans`, and without both it is fused.");
  m.def(
      kGatherFirst,
      [](nb::handle x, nb::handle weight, nb::handle gathered, nb::handle out, PyCommunicator& comm,
         const std::vector<std::int64_t>& counts, nb::handle bias, int threads,
         const std::string& backend, const std::optional<Named<Plan>>& plan,
         const PlanSource* plans) {
        const ConstTensorView own = const_view_of(x, {kGatherFirst, "x"});
        const Weight by = weight_of(weight, {kGatherFirst, "weight"});
        const TensorView rows = view_of(gathered, {kGatherFirst, "gathered"});
        const TensorView to = view_of(out, {kGatherFirst, "out"});
        ColumnsOptions options = {.counts = counts,
                                  .bias = const_view_of(bias, {kGatherFirst, "bias"}),
                                  .threads = threads,
                                  .backend = backend,
                                  .plans = plans};
        if (plan) options.plan = *plan;
        comm.use(
            [&](Communicator& c) { all_gather_columns_matmul(own, by, rows, to, c, options); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("gathered"), nb::arg("out"), nb::arg("comm"),
      nb::kw_only(), nb::arg("counts") = std::vector<std::int64_t>(), nb::arg("bias") = nb::none(),
      nb::arg("threads") = 0, nb::arg("backend") = "", nb::arg("plan") = nb::none(),
      nb::arg("plans") = nb::none(),
      nb::sig("def all_gather_columns_matmul(x: Array | TensorView, weight: PackedWeight | "
              "WeightView, gathered: Array | TensorView, out: Array | TensorView, comm: "
              "Communicator, *, counts: collections.abc.Sequence[int] = (), bias: Array | "
              "TensorView | None = None, threads: int = 0, backend: str = '', "
              "plan: Plan | str | None = None, plans: PlanSource | None = None) -> None"),
      "out = x·weight, where each rank has some columns of x.\n\n"
      "x is [m, k_r], `gathered` [m, the sum of all k_r], weight [k, n] and out [m, n], which may\n"
      "differ from rank to rank. `gathered` receives all columns. Rows arrive while those before\n"
      "them are multiplied. `counts` is every rank's k_r; without it the columns are balanced.\n"
      "`bias` is of this rank's output. Without `plan` the call follows that of `plans`, and "
      "without\n"
      "both it is fused.");
}

}  // namespace plait::python
