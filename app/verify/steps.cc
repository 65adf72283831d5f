#include "verify/steps.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ops/shapes.h"
#include "plait/gemm.h"
#include "plan/sizes.h"
#include "tensor/coded_rows.h"
#include "tensor/copy_rows.h"
#include "tensor/in_pairs.h"

namespace plait::verify {
namespace {

using plan::length;

// A matrix of sums.
class Sums {
 public:
  Sums(std::int64_t rows, std::int64_t cols)
      : cols_(cols), sums_(static_cast<std::size_t>(rows * cols)) {}

  explicit Sums(const ConstTensorView& matrix) : Sums(matrix.rows, matrix.cols) {
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      convert(matrix.row(row), matrix.dtype, sums_.data() + row * cols_, Dtype::f32,
              static_cast<std::size_t>(cols_));
    }
  }

  static Sums added_in_pairs(std::vector<Sums> parts) {
    tensor::add_in_pairs(parts, [](Sums& sum, const Sums& more) { sum.add(more); });
    return std::move(parts[0]);
  }

  void add_to_rows(const ConstTensorView& bias) {
    std::vector<float> numbers(static_cast<std::size_t>(cols_));
    convert(bias.data, bias.dtype, numbers.data(), Dtype::f32, numbers.size());
    for (std::size_t i = 0; i < sums_.size(); ++i)
      sums_[i] = sum(sums_[i], numbers[i % numbers.size()]);
  }

  void round_to(const TensorView& out) const {
    for (std::int64_t row = 0; row < out.rows; ++row) {
      convert(sums_.data() + row * cols_, Dtype::f32, out.row(row), out.dtype,
              static_cast<std::size_t>(cols_));
    }
  }

 private:
  // A NaN is always the same one.
  static float sum(float a, float b) {
    const float both = a + b;
    return std::isnan(both) ? std::bit_cast<float>(0xffc00000U) : both;
  }

  void add(const Sums& more) {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = sum(sums_[i], more.sums_[i]);
  }

  std::int64_t cols_;
  std::vector<float> sums_;
};

class Steps {
 public:
  Steps(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all, int rank)
      : case_(one),
        all_(all),
        rank_(rank),
        world_(static_cast<int>(all.size())),
        out_(one.out, ops::count(ops::shapes_of(one.op).out, one.m, rank, world_),
             one.n[static_cast<std::size_t>(rank)]) {}

  Guarded run() && {
    const OperatorTraits& traits = traits_of(case_.op);
    if (traits.shares_k) {
      sum_products();
    } else if (traits.compute_first) {
      multiply_everywhere();
    } else if (traits.reduces) {
      multiply(summed().view(), rank_, out_.view(), mine().bias());
    } else if (traits.gathers) {
      multiply(gathered().view(), rank_, out_.view(), mine().bias());
    } else {
      multiply(mine().x(), rank_, out_.view(), mine().bias());
    }
    return std::move(out_);
  }

 private:
  const VerifyOperands& of(int rank) const { return *all_[static_cast<std::size_t>(rank)]; }
  const VerifyOperands& mine() const { return of(rank_); }

  // The number of equal shares of a sum, of which each product computes one.
  std::int64_t shares() const {
    return traits_of(case_.op).shares_k && case_.wire == Dtype::f32 ? world_ : 1;
  }

  // Multiplies by the weight of that rank.
  void multiply(const ConstTensorView& x, int rank, const TensorView& out,
                const ConstTensorView& bias) const {
    const auto index = static_cast<std::size_t>(rank);
    select_gemm({.m = x.rows,
                 .n = case_.n[index],
                 .k = case_.k[index],
                 .x = case_.x,
                 .weight = case_.weight,
                 .out = out.dtype,
                 .quant = case_.scheme,
                 .shares = shares()},
                {.threads = 1})
        .run({.x = {x}, .weight = of(rank).weight(), .out = out, .bias = bias});
  }

  // The rows of the result: all, or this rank's own.
  ConstTensorView rows_of_out(const ConstTensorView& all) const {
    const Range rows = ops::range_of(ops::shapes_of(case_.op).out, case_.m, rank_, world_);
    return all.row_range(rows.begin, rows.end);
  }

  void sum_products() {
    const TensorView out = out_.view();
    // Nothing is sent, and the product adds the bias itself.
    if (world_ == 1 && case_.wire == Dtype::f32)
      return multiply(mine().x(), rank_, out, mine().bias());
    const bool is_coded = case_.wire == Dtype::s8;
    const Guarded product(is_coded ? Dtype::f32 : case_.wire, out.rows, out.cols);
    std::vector<Sums> products;
    products.reserve(all_.size());
    for (int rank = 0; rank < world_; ++rank) {
      multiply(rows_of_out(of(rank).x()), rank, product.view(), {});
      if (is_coded) code(product.view());
      products.emplace_back(product.view());
    }
    Sums sums = Sums::added_in_pairs(std::move(products));
    if (case_.bias) sums.add_to_rows(mine().bias());
    sums.round_to(out);
  }

  // Puts in the place of sums what is received of them on an s8 wire.
  static void code(const TensorView& sums) {
    for (std::int64_t row = 0; row < sums.rows; ++row) {
      auto* numbers = static_cast<float*>(sums.row(row));
      tensor::round_as_coded(numbers, numbers, sums.cols);
    }
  }

  void multiply_everywhere() {
    std::int64_t row = 0;
    for (int rank = 0; rank < world_; ++rank) {
      const ConstTensorView x = of(rank).x();
      multiply(x, rank, out_.view().row_range(row, row + x.rows), of(rank).bias());
      row += x.rows;
    }
  }

  Guarded gathered() const {
    Guarded all(case_.x, case_.m, mine().x().cols);
    std::int64_t row = 0;
    for (const auto& operands : all_) {
      const ConstTensorView x = operands->x();
      Sums(x).round_to(all.view().row_range(row, row + x.rows));
      row += x.rows;
    }
    return all;
  }

  Guarded summed() const {
    std::vector<Sums> parts;
    parts.reserve(all_.size());
    for (int rank = 0; rank < world_; ++rank) parts.emplace_back(rows_of_out(of(rank).x()));
    const ConstTensorView first = rows_of_out(of(0).x());
    Guarded rounded(case_.x, first.rows, first.cols);
    Sums::added_in_pairs(std::move(parts)).round_to(rounded.view());
    return rounded;
  }

  const VerifyCase& case_;
  std::span<const std::unique_ptr<VerifyOperands>> all_;
  int rank_;
  int world_;
  Guarded out_;
};

}  // namespace

Guarded on_one_rank(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                    int rank) {
  const auto world = static_cast<int>(all.size());
  const std::int64_t share = one.k[0];
  const std::int64_t n = one.n[0];
  const Guarded x(one.x, one.m, share * world);
  for (int part = 0; part < world; ++part) {
    tensor::copy_rows(all[static_cast<std::size_t>(part)]->x(),
                      x.view().column_range(part * share, (part + 1) * share));
  }
  const Guarded result(one.out, one.m, n);
  GemmDesc desc = {.m = one.m,
                   .n = n,
                   .k = share * world,
                   .x = one.x,
                   .weight = one.weight,
                   .out = one.out,
                   .quant = one.scheme};
  GemmCall call = {.x = {x.view()},
                   .weight = WeightView{},
                   .out = result.view(),
                   .bias = all[static_cast<std::size_t>(rank)]->bias()};
  std::optional<PackedWeight> packed;
  const Guarded plain = joined_weight(one);
  const WeightView weight = {.view = plain.view(), .layout = one.layout};
  if (one.scheme) packed.emplace(quantize(weight, *one.scheme, /*threads=*/1));
  call.weight = packed ? Weight(*packed) : Weight(weight);
  select_gemm(desc, {.threads = 1}).run(call);
  const Range rows = ops::range_of(ops::shapes_of(one.op).out, one.m, rank, world);
  Guarded out(one.out, length(rows), n);
  tensor::copy_rows(result.view().row_range(rows.begin, rows.end), out.view());
  return out;
}

Guarded in_steps(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                 int rank) {
  return Steps(one, all, rank).run();
}

}  // namespace plait::verify
