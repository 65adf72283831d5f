#include "cli/verify/steps.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/shapes.h"
#include "plait/collectives.h"
#include "plait/gemm.h"

namespace plait::cli {
namespace {

// A matrix of sums.
class Sums {
 public:
  Sums(std::int64_t rows, std::int64_t cols)
      : cols_(cols), sums_(static_cast<std::size_t>(rows * cols)), row_(sums_.size()) {}

  void set(const ConstTensorView& to) { read(to, sums_); }

  void add(const ConstTensorView& more) {
    read(more, row_);
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = sum(sums_[i], row_[i]);
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

  void read(const ConstTensorView& from, std::vector<float>& to) const {
    for (std::int64_t row = 0; row < from.rows; ++row) {
      convert(from.row(row), from.dtype, to.data() + row * cols_, Dtype::f32,
              static_cast<std::size_t>(cols_));
    }
  }

  std::int64_t cols_;
  std::vector<float> sums_, row_;
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
    switch (case_.op) {
      case Operator::matmul:
        multiply(mine().x(), rank_, out_.view(), mine().bias());
        break;
      case Operator::matmul_all_reduce:
      case Operator::matmul_reduce_scatter:
        sum_products();
        break;
      case Operator::matmul_all_gather:
        multiply_everywhere();
        break;
      case Operator::all_gather_matmul:
        multiply(gathered().view(), rank_, out_.view(), mine().bias());
        break;
      case Operator::reduce_scatter_matmul:
      case Operator::all_reduce_matmul:
        multiply(summed().view(), rank_, out_.view(), mine().bias());
        break;
    }
    return std::move(out_);
  }

 private:
  const VerifyOperands& of(int rank) const { return *all_[static_cast<std::size_t>(rank)]; }
  const VerifyOperands& mine() const { return of(rank_); }

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
                 .quant = case_.scheme},
                {.threads = 1})
        .run({.x = {x}, .weight = of(rank).weight(), .out = out, .bias = bias});
  }

  // The rows of the result: all, or this rank's own.
  ConstTensorView rows_of_out(const ConstTensorView& all) const {
    if (ops::shapes_of(case_.op).out == ops::Rows::all) return all;
    const Shard shard = balanced_shard(static_cast<std::size_t>(case_.m), rank_, world_);
    const auto begin = static_cast<std::int64_t>(shard.offset);
    return all.row_range(begin, begin + static_cast<std::int64_t>(shard.count));
  }

  void sum_products() {
    const TensorView out = out_.view();
    // Nothing is sent, and the product adds the bias itself.
    if (world_ == 1 && case_.wire == Dtype::f32)
      return multiply(mine().x(), rank_, out, mine().bias());
    const Guarded product(case_.wire, out.rows, out.cols);
    Sums sums(out.rows, out.cols);
    for (int rank = 0; rank < world_; ++rank) {
      multiply(rows_of_out(of(rank).x()), rank, product.view(), {});
      if (rank == 0) {
        sums.set(product.view());  // set, not added to 0, because 0 + -0 is 0
      } else {
        sums.add(product.view());
      }
    }
    if (case_.bias) sums.add_to_rows(mine().bias());
    sums.round_to(out);
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
      Sums shard(x.rows, x.cols);
      shard.set(x);
      shard.round_to(all.view().row_range(row, row + x.rows));
      row += x.rows;
    }
    return all;
  }

  Guarded summed() const {
    const ConstTensorView first = rows_of_out(of(0).x());
    Sums sums(first.rows, first.cols);
    sums.set(first);
    for (int rank = 1; rank < world_; ++rank) sums.add(rows_of_out(of(rank).x()));
    Guarded rounded(case_.x, first.rows, first.cols);
    sums.round_to(rounded.view());
    return rounded;
  }

  const VerifyCase& case_;
  std::span<const std::unique_ptr<VerifyOperands>> all_;
  int rank_;
  int world_;
  Guarded out_;
};

}  // namespace

Guarded in_steps(const VerifyCase& one, std::span<const std::unique_ptr<VerifyOperands>> all,
                 int rank) {
  return Steps(one, all, rank).run();
}

}  // namespace plait::cli
