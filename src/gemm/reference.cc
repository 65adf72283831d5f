#include "gemm/reference.h"

#include <array>
#include <cstring>

#include "base/default_floats.h"
#include "gemm/output_rows.h"

namespace plait::gemm {
namespace {

float read(const ConstTensorView& view, std::int64_t i, std::int64_t j) {
  float value = 0;
  convert(static_cast<const std::byte*>(view.row(i)) +
              j * static_cast<std::int64_t>(size_of(view.dtype)),
          view.dtype, &value, Dtype::f32, 1);
  return value;
}

// value + offset, where it is quantised.
float read(const PackedWeight& weight, const Depth& depth, std::int64_t column, std::int64_t k) {
  const std::byte* panel = weight.panel(column / kPanelColumns);
  const std::int64_t j = column % kPanelColumns;
  const std::int64_t group = depth.group_of(k);
  const std::int64_t at = depth.padded_begin(group) + (k - depth.begin(group));
  const std::int64_t pair = at / 2 * kPanelColumns + j;
  if (const std::optional<QuantScheme>& scheme = weight.scheme()) {
    const std::int8_t* offsets = weight.offsets(group, column / kPanelColumns);
    const int offset = offsets == nullptr ? 0 : offsets[j];
    if (scheme->bits == 8)
      return static_cast<float>(static_cast<std::int8_t>(panel[pair * 2 + at % 2]) + offset);
    // Arithmetic shifts keep the sign of the half that is on top.
    const auto half = static_cast<std::int8_t>(panel[pair] << (at % 2 == 0 ? 4 : 0));
    return static_cast<float>((half >> 4) + offset);
  }
  const std::int64_t index =
      weight.dtype() == Dtype::f32 ? at * kPanelColumns + j : pair * 2 + at % 2;
  float value = 0;
  convert(panel + index * static_cast<std::int64_t>(size_of(weight.dtype())), weight.dtype(),
          &value, Dtype::f32, 1);
  return value;
}

float read(const WeightView& weight, std::int64_t column, std::int64_t k) {
  return weight.layout == WeightLayout::out_in ? read(weight.view, column, k)
                                               : read(weight.view, k, column);
}

// The scale of a column in a group, and of those after it; nullptr: the weight is not quantised.
const float* scales_of(const GemmCall& call, std::int64_t group, std::int64_t column) {
  if (!call.weight.scheme()) return nullptr;
  return call.weight.packed().scales(group, column / kPanelColumns) + column % kPanelColumns;
}

float chain(const Task& task, std::int64_t row, std::int64_t column, Range ks) {
  const GemmCall& call = task.call;
  float total = 0;
  for (std::int64_t k = ks.begin; k < ks.end; ++k) {
    const float x = call.x.transposed ? read(call.x.view, k, row) : read(call.x.view, row, k);
    total += x * (call.weight.is_packed() ? read(call.weight.packed(), task.depth, column, k)
                                          : read(call.weight.view(), column, k));
  }
  return total;
}

float leaf(const Task& task, std::int64_t row, std::int64_t column, Range ks) {
  const Depth& depth = task.depth;
  if (depth.group == 0) {
    const float* scale = scales_of(task.call, 0, column);
    return chain(task, row, column, ks) * (scale == nullptr ? 1 : *scale);
  }
  float total = 0;
  for (std::int64_t k = ks.begin; k < ks.end; k += depth.group_size()) {
    const std::int64_t g = depth.group_of(k);
    const Range group = {k, k + depth.length(g)};
    total += chain(task, row, column, group) * *scales_of(task.call, g, column);
  }
  return total;
}

// The sum of these leaves, whose number is a power of two.
float node(const Task& task, std::int64_t row, std::int64_t column, Range leaves) {
  if (size(leaves) == 1) {
    return leaf(task, row, column,
                {task.leaves.begin(leaves.begin), task.leaves.begin(leaves.end)});
  }
  const std::int64_t middle = (leaves.begin + leaves.end) / 2;
  const float left = node(task, row, column, {leaves.begin, middle});
  return left + node(task, row, column, {middle, leaves.end});
}

}  // namespace

void run_reference(const Task& task) {
  const GemmCall& call = task.call;
  for (std::int64_t i = task.rows.begin; i < task.rows.end; ++i) {
    for (std::int64_t j = task.columns.begin; j < task.columns.end; ++j) {
      const float total = task.depth.k == 0 ? 0 : node(task, i, j, {0, task.leaves.count()});
      const Finish how = {.scales = nullptr,
                          .bias = task.bias == nullptr ? nullptr : task.bias + j,
                          .accumulate = call.accumulate};
      const std::int64_t row = i - task.rows.begin;
      const std::int64_t column = j - task.columns.begin;
      OutputRows rows(call, {.rows = {row, row + 1}, .columns = {column, column + 1}});
      portable_loops().finish(how, &total, rows.next());
    }
    if (!call.on_tile) continue;
    call.on_tile({.rows = {i, i + 1}, .columns = task.columns});
    base::set_default_floats();  // whatever the caller's code has set
  }
}

}  // namespace plait::gemm
