#include "gemm/checks.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "gemm/output_rows.h"
#include "quant/scheme.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait::gemm {
namespace {

void check_range(Range range, std::int64_t count, const char* what) {
  const Range all = resolved(range, count);
  PLAIT_CHECK(all.begin >= 0 && all.begin <= all.end && all.end <= count, "matmul: the window's ",
              what, " ", all.begin, " to ", all.end, " are not within the product's ", count);
}

void check_dtype(Dtype got, Dtype want, const char* what) {
  PLAIT_CHECK(got == want, "matmul: ", what, " is ", name(got), " but the product was made for ",
              name(want));
}

// "4 x 6 bf16 at 0x7f00"
std::string description_of(const ConstTensorView& view) {
  return base::sentence(view.rows, " x ", view.cols, " ", name(view.dtype), " at ", view.data);
}

void check_apart(const ConstTensorView& out, const ConstTensorView& other, const char* what) {
  PLAIT_CHECK(tensor::are_apart(out, other), "matmul: out overlaps ", what, ": ",
              description_of(out), " and ", description_of(other));
}

void check_apart(const GemmCall& call, const ConstTensorView& other, const char* what) {
  for (const TensorView& out : outs_of(call)) check_apart(out, other, what);
}

// `rows` by `columns` is what the window comes to.
void check_outs(const GemmDesc& desc, const GemmCall& call, std::int64_t rows,
                std::int64_t columns) {
  std::int64_t all_rows = 0;
  for (const TensorView& out : outs_of(call)) {
    tensor::validate_on_cpu(out, "matmul: out");
    check_dtype(out.dtype, desc.out, "out");
    PLAIT_CHECK(out.cols == columns && (!call.outs.empty() || out.rows == rows), "matmul: out is ",
                out.rows, " x ", out.cols, " but the window is ", rows, " x ", columns);
    all_rows += out.rows;
  }
  PLAIT_CHECK(call.outs.empty() || call.out.data == nullptr,
              "matmul: both out and outs say where to write");
  for (std::size_t i = 1; i < call.outs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      PLAIT_CHECK(tensor::are_apart(call.outs[j], call.outs[i]), "matmul: outs ", j, " and ", i,
                  " overlap: ", description_of(call.outs[j]), " and ",
                  description_of(call.outs[i]));
  }
  PLAIT_CHECK(all_rows == rows, "matmul: the ", call.outs.size(), " outs have ", all_rows,
              " rows together but the window has ", rows);
}

void check_bias(const GemmDesc& desc, const ConstTensorView& bias) {
  if (bias.data == nullptr && bias.rows == 0) return;
  tensor::validate_on_cpu(bias, "matmul: bias");
  PLAIT_CHECK(bias.dtype != Dtype::s8, "matmul: bias is s8; it is one of f32, bf16 and f16");
  PLAIT_CHECK(bias.rows == 1 && bias.cols == desc.n, "matmul: bias is ", bias.rows, " x ",
              bias.cols, " but the product has ", desc.n, " columns");
}

void check_weight(const GemmDesc& desc, const GemmCall& call) {
  const Weight& weight = call.weight;
  if (weight.is_packed()) {
    PLAIT_CHECK(weight.packed().bytes() > 0 || weight.n() == 0 || weight.k() == 0,
                "matmul: weight has been moved to another PackedWeight");
    PLAIT_CHECK(weight.scheme() == desc.quant, "matmul: weight is ", name(weight.kind()),
                " but the product was made for ",
                desc.quant ? name(*desc.quant) : std::string(name(desc.weight)));
    if (!desc.quant) check_dtype(weight.dtype(), desc.weight, "weight");
    PLAIT_CHECK(weight.n() == desc.n && weight.k() == desc.k, "matmul: weight has n=", weight.n(),
                " k=", weight.k(), " but the product was made for n=", desc.n, " k=", desc.k);
    return;
  }
  const WeightView& plain = weight.view();
  tensor::validate_on_cpu(plain.view, "matmul: weight");
  quant::check_layout(plain.layout, "matmul: the weight");
  PLAIT_CHECK(plain.view.dtype != Dtype::s8, "matmul: weight is an s8 view of ", plain.view.rows,
              " x ", plain.view.cols,
              ", which needs scales: QuantizedWeight::from_parts() takes both");
  PLAIT_CHECK(!desc.quant, "matmul: weight is ", name(plain.view.dtype),
              " but the product was made for ", name(*desc.quant),
              "; a quantised weight comes as a PackedWeight");
  check_dtype(plain.view.dtype, desc.weight, "weight");
  PLAIT_CHECK(plain.n() == desc.n && plain.k() == desc.k, "matmul: weight is ", plain.view.rows,
              " x ", plain.view.cols, " (", name(plain.layout),
              ") but the product was made for n=", desc.n, " k=", desc.k);
  check_apart(call, plain.view, "weight");
}

}  // namespace

Range resolved(Range range, std::int64_t count) {
  return {range.begin, range.end == -1 ? count : range.end};
}

void check(const GemmDesc& desc) {
  PLAIT_CHECK(desc.m >= 0 && desc.n >= 0 && desc.k >= 0, "matmul: m=", desc.m, " n=", desc.n,
              " k=", desc.k, " has a negative size");
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // counts of sizes up to it don't overflow
  PLAIT_CHECK(desc.m <= kMost && desc.n <= kMost && desc.k <= kMost, "matmul: m=", desc.m,
              " n=", desc.n, " k=", desc.k, " has a size beyond 2^48");
  PLAIT_CHECK(desc.shares >= 1 && desc.shares <= 65536, "matmul: shares=", desc.shares,
              " is not between 1 and 65536");
  if (desc.quant) quant::check_scheme(*desc.quant, "matmul");
  const Dtype weight = desc.quant ? Dtype::bf16 : desc.weight;
  PLAIT_CHECK(weight != Dtype::s8, "matmul: weight is s8, which needs a scheme such as s8:channel");
  for (const auto& [dtype, what] :
       {std::pair{desc.x, "x"}, std::pair{weight, "weight"}, std::pair{desc.out, "out"}}) {
    PLAIT_CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16,
                "matmul: ", what, " is ", name(dtype), "; products take f32, bf16 and f16");
  }
}

void check_input(const GemmDesc& desc, const GemmInput& x) {
  tensor::validate_on_cpu(x.view, "matmul: x");
  check_dtype(x.view.dtype, desc.x, "x");
  PLAIT_CHECK(x.k() == desc.k, "matmul: x is ", x.view.rows, " x ", x.view.cols,
              x.transposed ? " (transposed)" : "", " but the product was made for k=", desc.k);
}

void check(const GemmDesc& desc, const GemmCall& call) {
  check_input(desc, call.x);
  check_weight(desc, call);
  check_range(call.window.rows, call.x.rows(), "rows");
  check_range(call.window.columns, desc.n, "columns");
  const Range rows = resolved(call.window.rows, call.x.rows());
  const Range columns = resolved(call.window.columns, desc.n);
  check_outs(desc, call, rows.end - rows.begin, columns.end - columns.begin);
  check_bias(desc, call.bias);
  check_apart(call, call.x.view, "x");
  check_apart(call, call.bias, "bias");
}

void check_weight_and_bias(const GemmDesc& desc, const GemmCall& call) {
  check_weight(desc, call);
  check_bias(desc, call.bias);
  check_apart(call, call.bias, "bias");
}

}  // namespace plait::gemm
