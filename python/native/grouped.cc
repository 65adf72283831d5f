#include "plait/grouped_gemm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "plait/error.h"
#include "views.h"

namespace plait::python {
namespace {

constexpr const char* kOp = "grouped_matmul";

// Without a group there is no weight to take its kind from.
GemmDesc desc_of(const ConstTensorView& x, const std::vector<Weight>& weights,
                 const TensorView& out) {
  GemmDesc desc = {
      .m = x.rows, .n = out.cols, .k = x.cols, .x = x.dtype, .weight = x.dtype, .out = out.dtype};
  if (weights.empty()) return desc;
  desc.m = x.rows / static_cast<std::int64_t>(weights.size());
  desc.n = weights.front().n();
  desc.k = weights.front().k();
  desc.quant = weights.front().scheme();
  if (!desc.quant) desc.weight = weights.front().dtype();
  return desc;
}

}  // namespace

void bind_grouped(nb::module_& m) {
  m.def(
      kOp,
      [](nb::handle x, const nb::sequence& weights, const std::vector<std::int64_t>& rows,
         nb::handle out, const std::optional<nb::sequence>& biases, int threads,
         const std::string& backend) {
        const ConstTensorView x_view = const_view_of(x, {kOp, "x"});
        const TensorView out_view = view_of(out, {kOp, "out"});
        // A sequence may make its items as they are asked for, and another thread may change it.
        const nb::tuple kept(weights);
        const nb::tuple kept_biases = biases ? nb::tuple(*biases) : nb::tuple();
        std::vector<Weight> by;
        for (const nb::handle weight : kept) by.push_back(weight_of(weight, {kOp, "weights"}));
        std::vector<ConstTensorView> added;
        for (const nb::handle bias : kept_biases)
          added.push_back(const_view_of(bias, {kOp, "biases"}));
        if (biases && added.size() != by.size()) {
          throw Error(Code::invalid_argument, "grouped matmul: " + std::to_string(added.size()) +
                                                  " biases for " + std::to_string(by.size()) +
                                                  " weights");
        }
        unlocked([&] {
          select_grouped_gemm(desc_of(x_view, by, out_view),
                              {.backend = backend, .threads = threads})
              .run({.x = x_view, .rows = rows, .weights = by, .out = out_view, .biases = added});
        });
      },
      nb::arg("x"), nb::arg("weights"), nb::arg("rows"), nb::arg("out"), nb::kw_only(),
      nb::arg("biases") = nb::none(), nb::arg("threads") = 0, nb::arg("backend") = "",
      nb::sig("def grouped_matmul(x: Array | TensorView, weights: collections.abc.Sequence["
              "PackedWeight | WeightView], rows: collections.abc.Sequence[int], "
              "out: Array | TensorView, *, biases: collections.abc.Sequence[Array | TensorView] | "
              "None = None, threads: int = 0, backend: str = '') -> None"),
      "Multiply groups of rows, each by its own weight, on this rank alone.\n\n"
      "`rows` says how many rows of x are each group's, in their order; 0 is allowed. x is\n"
      "[all rows, k], out [all rows, n]. Weights have the same sizes and kind. The bits are\n"
      "those of a product for each group.");
}

}  // namespace plait::python
