#include "plait/quantized.h"

#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "quant/scheme.h"
#include "quant/tiles.h"
#include "tensor/validate.h"

namespace plait {
namespace {

constexpr std::string_view kWho = "quantized weight";

// The arguments of from_parts() that the parts must match.
struct Wanted {
  const QuantScheme& scheme;
  std::int64_t n, k;
  const quant::Format& format;
};

void check_values(const Wanted& wanted, const QuantizedParts& parts) {
  const ConstTensorView& values = parts.values;
  quant::check_layout(parts.layout, "quantized weight: the tensor of values");
  tensor::validate_on_cpu(values, "quantized weight: the tensor of values");
  PLAIT_CHECK(values.dtype == Dtype::s8, kWho, ": values are ", name(values.dtype), ", not s8");
  const bool out_in = parts.layout == WeightLayout::out_in;
  const std::int64_t rows = out_in ? wanted.n : wanted.k;
  const std::int64_t cols = wanted.format.row_bytes(out_in ? wanted.k : wanted.n);
  PLAIT_CHECK(values.rows == rows && values.cols == cols, kWho, ": values are ", values.rows, " x ",
              values.cols, " but n = ", wanted.n, " and k = ", wanted.k, " in ", name(parts.layout),
              " with ", wanted.scheme.bits, " bits needs ", rows, " x ", cols);
}

// "32 groups of 128 in k = 4096 need 32 x 4096"
std::string need_of(const Wanted& wanted) {
  switch (wanted.scheme.per) {
    case QuantPer::tensor:
      return "one per tensor needs 1 x 1";
    case QuantPer::channel:
      return base::sentence("one per channel of n = ", wanted.n, " needs 1 x ", wanted.n);
    case QuantPer::group:
      break;
  }
  const std::int64_t groups = quant::group_count(wanted.scheme, wanted.k);
  return base::sentence(groups, groups == 1 ? " group of " : " groups of ", wanted.scheme.group,
                        " in k = ", wanted.k, groups == 1 ? " needs " : " need ", groups, " x ",
                        wanted.n);
}

void check_shape(const Wanted& wanted, const ConstTensorView& view, const char* what) {
  const std::int64_t rows = quant::group_count(wanted.scheme, wanted.k);
  const std::int64_t cols = wanted.scheme.per == QuantPer::tensor ? 1 : wanted.n;
  PLAIT_CHECK(view.rows == rows && view.cols == cols, kWho, ": ", what, " are ", view.rows, " x ",
              view.cols, " but ", need_of(wanted));
}

void check_scales(const Wanted& wanted, const ConstTensorView& scales) {
  tensor::validate_on_cpu(scales, "quantized weight: the tensor of scales");
  PLAIT_CHECK(scales.dtype != Dtype::s8, kWho, ": scales are s8; they must be f32, bf16 or f16");
  check_shape(wanted, scales, "scales");
}

void check_offsets(const Wanted& wanted, const ConstTensorView& offsets) {
  if (!wanted.scheme.offsets) {
    PLAIT_CHECK(offsets.data == nullptr, kWho, ": offsets are given but ", name(wanted.scheme),
                " has none");
    return;
  }
  const bool needed = wanted.n > 0 && quant::group_count(wanted.scheme, wanted.k) > 0;
  if (offsets.data == nullptr && !needed) return;
  PLAIT_CHECK(offsets.data != nullptr, kWho, ": ", name(wanted.scheme),
              " has offsets but none are given");
  tensor::validate_on_cpu(offsets, "quantized weight: the tensor of offsets");
  PLAIT_CHECK(offsets.dtype == Dtype::s8, kWho, ": offsets are ", name(offsets.dtype), ", not s8");
  check_shape(wanted, offsets, "offsets");
  for (std::int64_t g = 0; g < offsets.rows; ++g) {
    const auto* row = static_cast<const std::int8_t*>(offsets.row(g));
    for (std::int64_t j = 0; j < offsets.cols; ++j) {
      PLAIT_CHECK(row[j] >= wanted.format.lowest && row[j] <= wanted.format.highest, kWho,
                  ": the offset at [", g, ", ", j, "] is ", static_cast<int>(row[j]), "; ",
                  wanted.scheme.bits, " bits have ", wanted.format.lowest, " to ",
                  wanted.format.highest);
    }
  }
}

void check_finite(const ConstTensorView& scales, const float* row, std::int64_t g) {
  for (std::int64_t j = 0; j < scales.cols; ++j) {
    PLAIT_CHECK(std::isfinite(row[j]), kWho, ": the scale at [", g, ", ", j, "] is ",
                std::isnan(row[j]) ? "nan" : (row[j] < 0 ? "-inf" : "inf"));
  }
}

// Converts `from` to f32 [groups, n]. For a scheme per tensor, one column becomes n equal ones.
void copy_scales(const ConstTensorView& from, const TensorView& to) {
  for (std::int64_t g = 0; g < to.rows && to.cols > 0; ++g) {
    auto* row = static_cast<float*>(to.row(g));
    convert(from.row(g), from.dtype, row, Dtype::f32, static_cast<std::size_t>(from.cols));
    check_finite(from, row, g);
    std::fill(row + from.cols, row + to.cols, row[0]);
  }
}

void copy_offsets(const ConstTensorView& from, const TensorView& to) {
  for (std::int64_t g = 0; g < to.rows && to.cols > 0; ++g) {
    auto* row = static_cast<std::int8_t*>(to.row(g));
    convert(from.row(g), Dtype::s8, row, Dtype::s8, static_cast<std::size_t>(from.cols));
    std::fill(row + from.cols, row + to.cols, row[0]);
  }
}

// Copies values from any layout to [n, row_bytes(k)].
void copy_values(const Wanted& wanted, const WeightView& from, int threads, std::int8_t* to) {
  const std::int64_t row_bytes = wanted.format.row_bytes(wanted.k);
  const quant::Tiling tiling = {.n = wanted.n, .k = wanted.k, .threads = threads};
  quant::for_each_tile(tiling, [&](const quant::Tile& tile) {
    quant::Block<std::int8_t> block;
    quant::read_values(from, wanted.format, tile, block);
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      std::int8_t* row = to + (tile.column + c) * row_bytes + wanted.format.row_bytes(tile.k);
      wanted.format.pack(block.row(c), tile.k_count, row);
    }
  });
}

}  // namespace

QuantizedWeight QuantizedWeight::from_parts(const QuantScheme& scheme, std::int64_t n,
                                            std::int64_t k, const QuantizedParts& parts,
                                            int threads) {
  quant::check_scheme(scheme, kWho);
  base::check_threads(threads, kWho);
  PLAIT_CHECK(n >= 0 && k >= 0, kWho, ": n = ", n, " and k = ", k, " must not be negative");
  const Wanted wanted = {.scheme = scheme, .n = n, .k = k, .format = quant::format_of(scheme.bits)};
  check_values(wanted, parts);
  check_scales(wanted, parts.scales);
  check_offsets(wanted, parts.offsets);
  QuantizedWeight result;
  result.scheme_ = scheme;
  result.n_ = n;
  result.k_ = k;
  result.allocate();
  copy_scales(parts.scales, result.scales_.view(Dtype::f32, result.groups(), n));
  if (scheme.offsets) {
    copy_offsets(parts.offsets, result.offsets_.view(Dtype::s8, result.groups(), n));
  }
  copy_values(wanted, {.view = parts.values, .layout = parts.layout}, threads,
              reinterpret_cast<std::int8_t*>(result.values_.data()));
  return result;
}

std::int64_t QuantizedWeight::groups() const { return quant::group_count(scheme_, k_); }

int QuantizedWeight::value(std::int64_t column, std::int64_t k) const {
  check_inside(column, k);
  const void* row = values().row(column);
  return quant::format_of(scheme_.bits).value(static_cast<const std::int8_t*>(row), k);
}

int QuantizedWeight::offset(std::int64_t column, std::int64_t k) const {
  check_inside(column, k);
  if (!scheme_.offsets) return 0;
  return static_cast<const std::int8_t*>(offsets().data)[part_of(column, k)];
}

float QuantizedWeight::scale(std::int64_t column, std::int64_t k) const {
  check_inside(column, k);
  return static_cast<const float*>(scales().data)[part_of(column, k)];
}

ConstTensorView QuantizedWeight::values() const {
  check_not_moved();
  return values_.view(Dtype::s8, n_, quant::format_of(scheme_.bits).row_bytes(k_));
}

ConstTensorView QuantizedWeight::scales() const {
  check_not_moved();
  return scales_.view(Dtype::f32, groups(), n_);
}

ConstTensorView QuantizedWeight::offsets() const {
  check_not_moved();
  if (!scheme_.offsets) return {};
  return offsets_.view(Dtype::s8, groups(), n_);
}

void QuantizedWeight::allocate() {
  values_ = Buffer::for_tensor(Dtype::s8, n_, quant::format_of(scheme_.bits).row_bytes(k_));
  scales_ = Buffer::for_tensor(Dtype::f32, groups(), n_);
  if (scheme_.offsets) offsets_ = Buffer::for_tensor(Dtype::s8, groups(), n_);
}

void QuantizedWeight::check_not_moved() const {
  PLAIT_CHECK(values_.bytes() > 0 || n_ == 0 || k_ == 0, kWho,
              ": it has been moved to another QuantizedWeight");
}

void QuantizedWeight::check_inside(std::int64_t column, std::int64_t k) const {
  PLAIT_CHECK(column >= 0 && column < n_ && k >= 0 && k < k_, kWho, ": column ", column, ", k ", k,
              " is outside n = ", n_, ", k = ", k_);
}

std::size_t QuantizedWeight::part_of(std::int64_t column, std::int64_t k) const {
  return static_cast<std::size_t>(k / quant::group_size(scheme_, k_) * n_ + column);
}

}  // namespace plait
