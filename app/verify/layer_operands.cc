#include "verify/layer_operands.h"

#include <numeric>

#include "ops/shapes.h"

namespace plait::verify {
namespace {

constexpr std::uint64_t kSeedOfLayersWeight = 1;
constexpr std::uint64_t kSeedOfLayersBias = 2;
constexpr std::uint64_t kSeedOfLayersX = 4;  // plus the number of the forward
constexpr std::uint64_t kSeedOfLayersGradOut = 8;

}  // namespace

LayerOperands::LayerOperands(const LayerCase& one, int rank) : case_(one) {
  const auto before = one.shares.begin() + rank;
  const std::int64_t first = std::accumulate(one.shares.begin(), before, std::int64_t{0});
  const std::int64_t all = std::accumulate(before, one.shares.end(), first);
  own_ = {first, first + *before};
  outputs_ = one.row ? one.other : all;
  inputs_ = one.row ? all : one.other;
  own_rows_ = rows_of(rank);
  const bool out_in = one.layout == WeightLayout::out_in;
  weight_ = Guarded(one.scheme ? Dtype::f32 : one.weight, out_in ? outputs_ : inputs_,
                    out_in ? inputs_ : outputs_, one.gap);
  // A weight to be quantised must be finite, and a few far larger values would leave little of the
  // others.
  fill(weight_.view(), one.scheme ? Numbers::usual : one.numbers,
       one.seed * 16 + kSeedOfLayersWeight);
  if (one.scheme) {
    const WeightView whole = {.view = weight_.view(), .layout = one.layout};
    quantized_ = quantize(whole, *one.scheme, /*threads=*/1);
    quantized_turned_ = quantize(whole.turned(), *one.scheme, /*threads=*/1);
  }
  bias_ = made(one.out, 1, outputs_, kSeedOfLayersBias);
  for (int i = 0; i < one.in_flight; ++i) {
    const auto which = static_cast<std::uint64_t>(i);
    x_.push_back(made(one.x, one.m, inputs_, kSeedOfLayersX + which));
    grad_out_.push_back(made(one.grad_out, one.m, outputs_, kSeedOfLayersGradOut + which));
  }
}

ConstTensorView LayerOperands::grad_out(int i) const {
  return part(grad_out_[i].view(), out_rows(), own_outputs());
}

ConstTensorView LayerOperands::bias() const {
  return case_.bias ? part(bias_.view(), {0, 1}, own_outputs()) : TensorView{};
}

WeightView LayerOperands::weight() const {
  const bool out_in = case_.layout == WeightLayout::out_in;
  return {.view = out_in ? part(weight_.view(), own_outputs(), own_inputs())
                         : part(weight_.view(), own_inputs(), own_outputs()),
          .layout = case_.layout};
}

QuantizedWeight LayerOperands::quantized() const {
  return part_of(quantized_, own_outputs(), own_inputs());
}

QuantizedWeight LayerOperands::quantized_turned() const {
  return part_of(quantized_turned_, own_inputs(), own_outputs());
}

double LayerOperands::x_at(int i, std::int64_t row, std::int64_t input) const {
  return element(x_[i].view(), row, input);
}

double LayerOperands::grad_out_at(int i, std::int64_t row, std::int64_t output) const {
  return element(grad_out_[i].view(), row, output);
}

double LayerOperands::weight_at(std::int64_t output, std::int64_t input) const {
  return case_.scheme ? element(quantized_, input, output) : plain_weight_at(output, input);
}

double LayerOperands::turned_weight_at(std::int64_t output, std::int64_t input) const {
  return case_.scheme ? element(quantized_turned_, output, input) : plain_weight_at(output, input);
}

double LayerOperands::plain_weight_at(std::int64_t output, std::int64_t input) const {
  return element(WeightView{.view = weight_.view(), .layout = case_.layout}, input, output);
}

double LayerOperands::bias_at(std::int64_t output) const {
  return case_.bias ? element(bias_.view(), 0, output) : 0.0;
}

TensorView LayerOperands::part(const TensorView& view, Range rows, Range columns) {
  return view.row_range(rows.begin, rows.end).column_range(columns.begin, columns.end);
}

Range LayerOperands::rows_of(int rank) const {
  if (!case_.sequence_parallel) return {0, case_.m};
  return ops::shard_of(case_.m, rank, static_cast<int>(case_.shares.size()));
}

Guarded LayerOperands::made(Dtype dtype, std::int64_t rows, std::int64_t cols,
                            std::uint64_t which) const {
  Guarded matrix(dtype, rows, cols, case_.gap);
  fill(matrix.view(), case_.numbers, case_.seed * 16 + which);
  return matrix;
}

}  // namespace plait::verify
