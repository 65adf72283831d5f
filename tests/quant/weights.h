// Weights to quantise, and checks of quantised ones.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plait/buffer.h"
#include "plait/quantized.h"

namespace plait {

// The memory layout of a test's weight.
struct Lie {
  Dtype dtype = Dtype::f32;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t gap = 0;  // elements between the rows
};

// A weight that owns its memory; the gaps between its rows are NaN.
struct OwnedWeight {
  Buffer buffer;
  TensorView out;
  WeightLayout layout;

  WeightView view() const { return {.view = out, .layout = layout}; }
};

using WeightOf = std::function<float(std::int64_t column, std::int64_t k)>;

inline OwnedWeight empty_weight(std::int64_t n, std::int64_t k, const Lie& lie = {}) {
  const bool out_in = lie.layout == WeightLayout::out_in;
  const std::int64_t rows = out_in ? n : k;
  const std::int64_t cols = out_in ? k : n;
  Buffer buffer = Buffer::for_tensor(lie.dtype, rows, cols + lie.gap);
  if (buffer.bytes() > 0) std::memset(buffer.data(), 0xff, buffer.bytes());
  TensorView view = buffer.view(lie.dtype, rows, cols + lie.gap);
  view.cols = cols;
  return {std::move(buffer), view, lie.layout};
}

inline OwnedWeight make_weight(std::int64_t n, std::int64_t k, const WeightOf& weight_of,
                               const Lie& lie = {}) {
  OwnedWeight made = empty_weight(n, k, lie);
  const bool out_in = lie.layout == WeightLayout::out_in;
  for (std::int64_t row = 0; row < made.out.rows; ++row) {
    for (std::int64_t col = 0; col < made.out.cols; ++col) {
      const float weight = out_in ? weight_of(row, col) : weight_of(col, row);
      void* to = made.out.column_range(col, col + 1).row(row);
      convert(&weight, Dtype::f32, to, lie.dtype, 1);
    }
  }
  return made;
}

inline float weight_at(const WeightView& weight, std::int64_t column, std::int64_t k) {
  const bool out_in = weight.layout == WeightLayout::out_in;
  const std::int64_t row = out_in ? column : k;
  const std::int64_t col = out_in ? k : column;
  float value = 0;
  convert(weight.view.column_range(col, col + 1).row(row), weight.view.dtype, &value, Dtype::f32,
          1);
  return value;
}

inline std::vector<std::byte> bytes_of(const ConstTensorView& view) {
  std::vector<std::byte> all(view.bytes());
  for (std::int64_t row = 0; row < view.rows && view.row_bytes() > 0; ++row) {
    std::memcpy(all.data() + static_cast<std::size_t>(row) * view.row_bytes(), view.row(row),
                view.row_bytes());
  }
  return all;
}

inline bool same_weight(const QuantizedWeight& a, const QuantizedWeight& b) {
  return a.scheme() == b.scheme() && a.n() == b.n() && a.k() == b.k() &&
         bytes_of(a.values()) == bytes_of(b.values()) &&
         bytes_of(a.scales()) == bytes_of(b.scales()) &&
         bytes_of(a.offsets()) == bytes_of(b.offsets());
}

// Every kind of scheme, with groups of `group`.
inline std::vector<QuantScheme> all_schemes(std::int64_t group) {
  std::vector<QuantScheme> schemes;
  for (const int bits : {8, 4}) {
    for (const QuantPer per : {QuantPer::tensor, QuantPer::channel, QuantPer::group}) {
      for (const bool offsets : {false, true}) {
        schemes.push_back({.bits = bits,
                           .per = per,
                           .group = per == QuantPer::group ? group : 0,
                           .offsets = offsets});
      }
    }
  }
  return schemes;
}

// Parts for from_parts(); per tensor there is one scale, not n.
inline QuantizedParts parts_of(const QuantizedWeight& weight) {
  QuantizedParts parts = {.values = weight.values(),
                          .layout = WeightLayout::out_in,
                          .scales = weight.scales(),
                          .offsets = weight.offsets()};
  if (weight.scheme().per == QuantPer::tensor && weight.n() > 0) {
    parts.scales = parts.scales.column_range(0, 1);
    if (weight.scheme().offsets) parts.offsets = parts.offsets.column_range(0, 1);
  }
  return parts;
}

}  // namespace plait
