#include "plait/grouped_gemm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "named.h"
#include "plait/error.h"
#include "plait/gemm.h"
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

// Products that this thread has made before: making one takes longer than a product of few rows.
template <class Product, std::size_t most>
class Kept {
 public:
  template <class Make>
  Product& get(const GemmDesc& desc, Make&& make) {
    for (Entry& entry : entries_)
      if (entry.desc == desc) return *entry.product;
    if (entries_.size() == most) entries_.erase(entries_.begin());
    entries_.push_back({desc, std::make_unique<Product>(make(desc, GemmOptions{}))});
    return *entries_.back().product;
  }

 private:
  struct Entry {
    GemmDesc desc;
    std::unique_ptr<Product> product;
  };
  std::vector<Entry> entries_;
};

// All weights of a stack, one below another: [groups * n, k], or [groups * k, n] with in_out.
struct Stack {
  ConstTensorView all;
  std::int64_t groups;
  WeightLayout layout;

  WeightView weight(std::int64_t group) const {
    const std::int64_t rows = all.rows / groups;
    return {.view = all.row_range(group * rows, (group + 1) * rows), .layout = layout};
  }
};

void multiply_stack(const ConstTensorView& x, const Stack& stack,
                    std::span<const std::int64_t> rows, const TensorView& out,
                    const ConstTensorView& biases) {
  if (stack.groups == 0) return;
  std::vector<Weight> weights;
  std::vector<ConstTensorView> added;
  for (std::int64_t group = 0; group < stack.groups; ++group) {
    weights.emplace_back(stack.weight(group));
    if (biases.rows > 0) added.push_back(biases.row_range(group, group + 1));
  }
  GemmDesc desc = desc_of(x, weights, out);
  // The usual number of rows is a guess anyway.
  desc.m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(desc.m)));
  static thread_local Kept<GroupedGemm, 64> kept;
  kept.get(desc, select_grouped_gemm)
      .run({.x = x, .rows = rows, .weights = weights, .out = out, .biases = added});
}

// The gradient of each weight [n, k] of a stack: of its own rows, in their order. The sum over rows
// depends on how many these are, and so does the product.
void sum_stack(const ConstTensorView& grad, const ConstTensorView& x,
               std::span<const std::int64_t> rows, const TensorView& out) {
  // An expert's rows are seldom as many again: more than a step's kinds of products would be memory
  // for nothing.
  static thread_local Kept<Gemm, 4> kept;
  const auto groups = std::ssize(rows);
  std::int64_t first = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t own = rows[group];
    const TensorView to = out.row_range(group * grad.cols, (group + 1) * grad.cols);
    if (own == 0) {
      for (std::int64_t row = 0; row < to.rows; ++row) {
        std::memset(to.row(row), 0, static_cast<std::size_t>(to.cols) * size_of(to.dtype));
      }
      continue;
    }
    const GemmDesc desc = {.m = grad.cols,
                           .n = x.cols,
                           .k = own,
                           .x = grad.dtype,
                           .weight = x.dtype,
                           .out = out.dtype};
    kept.get(desc, select_gemm)
        .run({.x = {.view = grad.row_range(first, first + own), .transposed = true},
              .weight = WeightView{.view = x.row_range(first, first + own),
                                   .layout = WeightLayout::in_out},
              .out = to});
    first += own;
  }
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
  m.def(
      "_grouped_matmul_of_stack",
      [](const TensorView& x, const TensorView& weights, std::int64_t groups,
         Named<WeightLayout> layout, const std::vector<std::int64_t>& rows, const TensorView& out,
         const std::optional<TensorView>& biases) {
        const ConstTensorView added = biases ? ConstTensorView(*biases) : ConstTensorView();
        unlocked([&] { multiply_stack(x, {weights, groups, layout}, rows, out, added); });
      },
      nb::arg("x"), nb::arg("weights"), nb::arg("groups"), nb::arg("layout"), nb::arg("rows"),
      nb::arg("out"), nb::arg("biases") = nb::none());
  m.def(
      "_grouped_weight_gradients",
      [](const TensorView& grad, const TensorView& x, const std::vector<std::int64_t>& rows,
         const TensorView& out) { unlocked([&] { sum_stack(grad, x, rows, out); }); },
      nb::arg("grad"), nb::arg("x"), nb::arg("rows"), nb::arg("out"));
}

}  // namespace plait::python
