// Few rows by a stored panel, for sets whose fused multiply-adds take f32: a file of each set says
// how it turns what is stored into vectors, and is compiled for its instructions.
#pragma once

#include <algorithm>
#include <cstring>

#include "gemm/few_rows.h"
#include "plait/dtype.h"

namespace plait::gemm {

// Bytes of a vector of columns' pairs of k.
template <class Set>
constexpr std::int64_t vector_bytes(Storage stored) {
  return Set::kLanes * static_cast<std::int64_t>(bits_of(stored)) / 4;
}

// Lines are asked for into the second cache far ahead, and into the first shortly before their use.
template <class Set, Storage stored, int Vectors>
[[gnu::always_inline]] inline void ask_ahead(const std::byte* from) {
  constexpr std::int64_t kFarAhead = 32768;
  constexpr std::int64_t kNearAhead = 2048;
  for (std::int64_t line = 0; line < Vectors * vector_bytes<Set>(stored); line += 64) {
    __builtin_prefetch(from + kFarAhead + line, 0, 2);
    __builtin_prefetch(from + kNearAhead + line, 0, 3);
  }
}

template <class X>
[[gnu::always_inline]] inline float element_at(const std::byte* from) {
  X value;  // X may be aligned to bytes only
  std::memcpy(&value, from, sizeof(value));
  return static_cast<float>(value);
}

// Rows by the even or the odd ones of a row of pairs.
template <class Set, class X, Storage stored, bool Odd, bool Shifted, int Rows, int Vectors>
[[gnu::always_inline]] inline void add_row(const std::byte* x, std::int64_t row_stride,
                                           const std::byte* panel,
                                           const typename Set::Vector (&offsets)[Vectors],
                                           typename Set::Vector (&sums)[Rows][Vectors]) {
  constexpr int kAtOnce = std::min(Vectors, 4);  // whose values have registers
#pragma GCC unroll 8
  for (std::int64_t j0 = 0; j0 < Vectors; j0 += kAtOnce) {
    typename Set::Vector
        values[kAtOnce];  // NOLINT(*-avoid-c-arrays): std::array isn't in registers
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kAtOnce; ++j) {
      values[j] = Set::template values<stored, Odd>(panel + (j0 + j) * vector_bytes<Set>(stored));
      if constexpr (Shifted) values[j] = values[j] + offsets[j0 + j];
    }
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < Rows; ++r) {
      const typename Set::Vector same = Set::broadcast(element_at<X>(x + r * row_stride));
#pragma GCC unroll 8
      for (std::int64_t j = 0; j < kAtOnce; ++j)
        sums[r][j0 + j] = Set::multiply_add(same, values[j], sums[r][j0 + j]);
    }
  }
}

// Rows by the columns from `column` on.
template <class Set, class X, Storage stored, bool Shifted, int Rows>
void multiply_columns(const StoredTileCall& call, std::int64_t column) {
  using Vector = typename Set::Vector;
  constexpr int kVectors = Set::vectors(Rows);
  constexpr std::int64_t kRowBytes = kPanelColumns / Set::kLanes * vector_bytes<Set>(stored);
  float* const to = call.sums + column;
  Vector sums[Rows][kVectors];    // NOLINT(*-avoid-c-arrays)
  Vector offsets[kVectors] = {};  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      sums[r][j] = call.first ? Vector{} : Set::load(to + r * kPanelColumns + j * Set::kLanes);
    }
  }
  if constexpr (Shifted) {
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kVectors; ++j)
      offsets[j] = Set::widen(call.offsets + column + j * Set::kLanes);
  }
  const auto* panel = reinterpret_cast<const std::byte*>(call.panel) +
                      column / Set::kLanes * vector_bytes<Set>(stored);
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(X));
  const std::byte* x = call.rows;
  for (std::int64_t step = 0; step < call.k; step += kKStep, x += call.step_stride) {
    for (std::int64_t k = 0; k < kKStep; k += 2, panel += kRowBytes) {
      ask_ahead<Set, stored, kVectors>(panel);
      add_row<Set, X, stored, false, Shifted>(x + k * kSize, call.row_stride, panel, offsets, sums);
      add_row<Set, X, stored, true, Shifted>(x + (k + 1) * kSize, call.row_stride, panel, offsets,
                                             sums);
    }
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      Set::store(to + r * kPanelColumns + j * Set::kLanes, sums[r][j]);
  }
}

// One group, by `Rows` rows or fewer.
template <class Set, class X, Storage stored, bool Shifted, int Rows>
void multiply_group(const StoredTileCall& call) {
  if constexpr (Rows > 1) {
    if (call.row_count < Rows) return multiply_group<Set, X, stored, Shifted, Rows - 1>(call);
  }
  for (std::int64_t column = 0; column < kPanelColumns; column += Set::vectors(Rows) * Set::kLanes)
    multiply_columns<Set, X, stored, Shifted, Rows>(call, column);
}

// One group, by up to twice as many rows. The second half finds the panel in the second cache.
template <class Set, class X, Storage stored, bool Shifted>
void multiply_halves(const StoredTileCall& call) {
  StoredTileCall part = call;
  if (call.row_count > Set::kMostRows) {
    part.row_count = (call.row_count + 1) / 2;  // 7 → 4 + 3
    multiply_group<Set, X, stored, Shifted, Set::kMostRows>(part);
    part.rows += part.row_count * call.row_stride;
    part.sums += std::int64_t{part.row_count} * kPanelColumns;
    part.row_count = call.row_count - part.row_count;
  }
  multiply_group<Set, X, stored, Shifted, Set::kMostRows>(part);
}

// The lambdas are this file's own, as the set is: no other processor is given their code.
template <class Set, class X, Storage stored>
void multiply_few(const StoredTileCall& call) {
  if constexpr (bits_of(stored) <= 8) {
    if (call.offsets != nullptr) {
      return for_each_group<stored>(
          call, [](const StoredTileCall& group) { multiply_halves<Set, X, stored, true>(group); });
    }
  }
  for_each_group<stored>(
      call, [](const StoredTileCall& group) { multiply_halves<Set, X, stored, false>(group); });
}

// X: what the rows hold.
template <class Set, class X>
FewRows few_rows_in(Storage storage) {
  constexpr int kMost = 2 * Set::kMostRows;
  switch (storage) {
    case Storage::bf16:
      if constexpr (sizeof(X) == 2) break;  // as the rows are
      return {.max_rows = kMost, .multiply = multiply_few<Set, X, Storage::bf16>};
    case Storage::f16:
      if constexpr (sizeof(X) == 2) break;  // f16 isn't exact in bf16
      return {.max_rows = kMost, .multiply = multiply_few<Set, X, Storage::f16>};
    case Storage::s8:
      return {.max_rows = kMost, .multiply = multiply_few<Set, X, Storage::s8>};
    case Storage::s4:
      if constexpr (requires { Set::kHasOwnS4; }) break;
      return {.max_rows = kMost, .multiply = multiply_few<Set, X, Storage::s4>};
    case Storage::f32:
      break;
  }
  return {};
}

}  // namespace plait::gemm
