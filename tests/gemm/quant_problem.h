// A random product with a quantised weight, and what its elements should be made of.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "gemm/depth.h"
#include "gemm/matrix.h"
#include "gemm/quant_panels.h"
#include "plait/gemm.h"
#include "quant/format.h"
#include "quant/weights.h"

namespace plait {

// Any values, offsets and scales, not only those that quantize() would choose.
inline QuantizedWeight random_weight(const QuantScheme& scheme, std::int64_t n, std::int64_t k,
                                     unsigned seed) {
  std::mt19937 random(seed);
  const auto fill = [&](const TensorView& view, int lowest, int highest) {
    std::uniform_int_distribution<int> value(lowest, highest);
    for (std::int64_t i = 0; i < view.rows; ++i) {
      for (std::int64_t j = 0; j < view.cols; ++j)
        static_cast<std::int8_t*>(view.row(i))[j] = static_cast<std::int8_t>(value(random));
    }
  };
  const quant::Format& format = quant::format_of(scheme.bits);
  const Buffer values = Buffer::for_tensor(Dtype::s8, n, format.row_bytes(k));
  const TensorView values_view = values.view(Dtype::s8, n, format.row_bytes(k));
  fill(values_view, -128, 127);
  const std::int64_t rows =
      gemm::depth_of(scheme, k).group == 0 ? 1 : gemm::depth_of(scheme, k).groups();
  const std::int64_t cols = scheme.per == QuantPer::tensor ? 1 : n;
  const Matrix scales(Dtype::f32, rows, cols, seed + 1);
  const Matrix offsets(Dtype::s8, rows, cols, seed + 2);
  fill(offsets.view, format.lowest, format.highest);
  QuantizedParts parts = {
      .values = values_view, .layout = WeightLayout::out_in, .scales = scales.view};
  if (scheme.offsets) parts.offsets = offsets.view;
  return QuantizedWeight::from_parts(scheme, n, k, parts);
}

struct QuantProblem {
  QuantProblem(const GemmDesc& description, unsigned seed)
      : desc(description),
        depth(gemm::depth_of(desc)),
        weight(random_weight(*desc.quant, desc.n, desc.k, seed)),
        packed(weight, 1 + static_cast<int>(seed % 2)),
        x(desc.x, desc.m, desc.k, seed + 3),
        bias(Dtype::f32, 1, desc.n, seed + 4) {
    for (std::int64_t i = 0; i < desc.m; ++i) {
      for (std::int64_t k = 0; k < desc.k; ++k) rows.push_back(at(x.view, i, k));
    }
  }

  // The weights of a column.
  std::vector<double> column(std::int64_t j) const {
    std::vector<double> all;
    all.reserve(static_cast<std::size_t>(desc.k));
    for (std::int64_t k = 0; k < desc.k; ++k)
      all.push_back(double(weight.value(j, k) + weight.offset(j, k)) * double{weight.scale(j, k)});
    return all;
  }

  // value + offset, which the operand holds exactly.
  Matrix whole_numbers() const {
    const Dtype dtype = desc.x == Dtype::bf16 ? Dtype::bf16 : Dtype::f32;
    Matrix numbers(dtype, desc.n, desc.k);
    for (std::int64_t j = 0; j < desc.n; ++j) {
      for (std::int64_t k = 0; k < desc.k; ++k) {
        const auto number = static_cast<float>(weight.value(j, k) + weight.offset(j, k));
        convert(&number, Dtype::f32, numbers.view.column_range(k, k + 1).row(j), dtype, 1);
      }
    }
    return numbers;
  }

  GemmDesc desc;
  gemm::Depth depth;
  QuantizedWeight weight;
  PackedWeight packed;
  Matrix x;
  Matrix bias;
  std::vector<double> rows;  // x, one after another
};

}  // namespace plait
