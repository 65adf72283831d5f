// A vocabulary head that ranks share, the same on all of them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "conformance/ranks.h"
#include "plait/gemm.h"
#include "plait/vocabulary.h"

namespace plait {

inline constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

struct Head {
  std::int64_t m, v, k;
  Dtype dtype;
  std::vector<std::byte> x;  // [m, k]
  std::vector<std::byte> w;  // [v, k]

  // Whole numbers give many equal logits.
  Head(std::int64_t rows, std::int64_t ids, std::int64_t width, Dtype type = Dtype::f32,
       bool whole = false, unsigned seed = 1)
      : m(rows), v(ids), k(width), dtype(type) {
    std::mt19937 random(seed);
    const auto values = [&](std::int64_t count) {
      std::vector<float> drawn(static_cast<std::size_t>(count));
      for (float& value : drawn) {
        const auto bits = static_cast<float>(random() % 4096) / 1024 - 2;
        value = whole ? std::round(bits) : bits;
      }
      std::vector<std::byte> kept(drawn.size() * size_of(type));
      convert(drawn.data(), Dtype::f32, kept.data(), type, drawn.size());
      return kept;
    };
    x = values(m * k);
    w = values(v * k);
  }

  void set(std::vector<std::byte>& matrix, std::int64_t row, std::int64_t column,
           float value) const {
    convert(&value, Dtype::f32,
            matrix.data() + static_cast<std::size_t>(row * k + column) * size_of(dtype), dtype, 1);
  }

  ConstTensorView x_view() const {
    return {.data = x.data(), .dtype = dtype, .rows = m, .cols = k};
  }
  WeightView weight(std::int64_t first, std::int64_t count) const {
    const ConstTensorView all = {.data = w.data(), .dtype = dtype, .rows = v, .cols = k};
    return {.view = all.row_range(first, first + count), .layout = WeightLayout::out_in};
  }

  std::vector<float> logits(Dtype rounded = Dtype::f32) const {
    std::vector<float> all(static_cast<std::size_t>(m * v));
    if (all.empty()) return all;
    std::vector<std::byte> out(all.size() * size_of(rounded));
    Gemm gemm = select_gemm({.m = m, .n = v, .k = k, .x = dtype, .weight = dtype, .out = rounded});
    gemm.run({.x = {x_view()},
              .weight = weight(0, v),
              .out = {.data = out.data(), .dtype = rounded, .rows = m, .cols = v}});
    convert(out.data(), rounded, all.data(), Dtype::f32, all.size());
    return all;
  }
};

// The first ids of the ranks, and the end of the last one's. Here all have about the same number.
inline std::vector<std::int64_t> even_shares(std::int64_t v, int world) {
  std::vector<std::int64_t> firsts;
  for (int rank = 0; rank <= world; ++rank) firsts.push_back(v * rank / world);
  return firsts;
}

// The first rank has nothing, the last one most.
inline std::vector<std::int64_t> odd_shares(std::int64_t v, int world) {
  std::vector<std::int64_t> firsts = {0};
  for (int rank = 1; rank < world; ++rank)
    firsts.push_back(v * (rank - 1) * rank / (std::int64_t{3} * world * world));
  firsts.push_back(v);
  return firsts;
}

}  // namespace plait
