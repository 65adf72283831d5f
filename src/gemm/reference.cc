#include "gemm/reference.h"

#include <array>
#include <cstring>
#include <variant>

namespace plait::gemm {
namespace {

float read(const ConstTensorView& view, std::int64_t i, std::int64_t j) {
  float value = 0;
  convert(static_cast<const std::byte*>(view.row(i)) +
              j * static_cast<std::int64_t>(size_of(view.dtype)),
          view.dtype, &value, Dtype::f32, 1);
  return value;
}

float read(const PackedWeight& weight, std::int64_t column, std::int64_t k) {
  const std::byte* panel = weight.panel(column / kPanelColumns);
  const std::int64_t j = column % kPanelColumns;
  const bool wide = weight.dtype() == Dtype::f32;
  const std::int64_t index = wide ? k * kPanelColumns + j : (k / 2 * kPanelColumns + j) * 2 + k % 2;
  float value = 0;
  convert(panel + index * static_cast<std::int64_t>(size_of(weight.dtype())), weight.dtype(),
          &value, Dtype::f32, 1);
  return value;
}

struct ReadWeight {
  std::int64_t column;
  std::int64_t k;

  float operator()(const WeightView& weight) const {
    return weight.layout == WeightLayout::out_in ? read(weight.view, column, k)
                                                 : read(weight.view, k, column);
  }
  float operator()(const PackedWeight& weight) const { return read(weight, column, k); }
};

float sum(const GemmCall& call, std::int64_t row, std::int64_t column) {
  float total = 0;
  for (std::int64_t k = 0; k < call.x.k(); ++k) {
    const float x = call.x.transposed ? read(call.x.view, k, row) : read(call.x.view, row, k);
    total += x * std::visit(ReadWeight{column, k}, call.weight);
  }
  return total;
}

}  // namespace

void run_reference(const Task& task) {
  const GemmCall& call = task.call;
  for (std::int64_t i = task.rows.begin; i < task.rows.end; ++i) {
    for (std::int64_t j = task.columns.begin; j < task.columns.end; ++j) {
      const float total = sum(call, i, j);
      const Finish how = {.scales = nullptr,
                          .bias = task.bias == nullptr ? nullptr : task.bias + j,
                          .accumulate = call.accumulate,
                          .dtype = call.out.dtype};
      const TensorView out =
          call.out.column_range(j - task.columns.begin, j - task.columns.begin + 1);
      portable_loops().finish(how, &total, 1, out.row(i - task.rows.begin));
    }
    if (call.on_tile) call.on_tile({.rows = {i, i + 1}, .columns = task.columns});
  }
}

}  // namespace plait::gemm
