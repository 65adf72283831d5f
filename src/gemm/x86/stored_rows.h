// Code that loops over stored panels share: rows of 64 pairs of k, read from memory once.
#pragma once

#include <immintrin.h>

#include "gemm/kernel.h"
#include "gemm/leaves.h"

namespace plait::gemm {

inline constexpr std::int64_t kLanes = 16;
inline constexpr int kVectors = kPanelColumns / kLanes;  // of a row of a panel
inline constexpr int kPairs = kKStep / 2;

// These files use plain arrays: a std::array of vectors would lose their alignment.
using Floats = __m512[kVectors];  // NOLINT(*-avoid-c-arrays)

// Bytes of a row of pairs of a panel.
constexpr std::int64_t row_bytes(Storage storage) {
  return kPanelColumns * static_cast<std::int64_t>(bits_of(storage)) / 4;
}

// Panels come from memory: asked for far ahead into the second cache, which can wait for more lines
// at once than the first one, and into the first shortly before their use. 1.1 to 1.4 times as fast
// as 8 KiB ahead into the first alone.
[[gnu::always_inline]] inline void ask_ahead(const std::int8_t* row, Storage storage) {
  constexpr std::int64_t kFarAhead = 32768;
  constexpr std::int64_t kNearAhead = 2048;
  for (std::int64_t line = 0; line < row_bytes(storage); line += 64) {
    _mm_prefetch(row + kFarAhead + line, _MM_HINT_T1);
    _mm_prefetch(row + kNearAhead + line, _MM_HINT_T0);
  }
}

// Six rows' sums are 24 registers.
inline constexpr int kRowsAtOnce = 6;

// Loop::rows<R>(call) for the R rows of the call, at most kRowsAtOnce: a loop for each number of
// them, whose sums stay in registers.
template <class Loop>
void up_to_six(const StoredTileCall& call) {
  switch (call.row_count) {
    case 1:
      return Loop::template rows<1>(call);
    case 2:
      return Loop::template rows<2>(call);
    case 3:
      return Loop::template rows<3>(call);
    case 4:
      return Loop::template rows<4>(call);
    case 5:
      return Loop::template rows<5>(call);
    default:
      return Loop::template rows<kRowsAtOnce>(call);
  }
}

// One group, by up to twice as many rows. The second half finds the panel in the second cache.
// 7 → 4 + 3
template <class Loop>
void two_halves(const StoredTileCall& call) {
  StoredTileCall part = call;
  if (call.row_count > kRowsAtOnce) {
    part.row_count = (call.row_count + 1) / 2;
    up_to_six<Loop>(part);
    part.rows += part.row_count * call.row_stride;
    part.sums += std::int64_t{part.row_count} * kPanelColumns;
    part.row_count = call.row_count - part.row_count;
  }
  up_to_six<Loop>(part);
}

// Lane i of vector j becomes lane j of vector i, a lane being 128 bits.
[[gnu::target("avx512f"), gnu::always_inline]] inline void turn_lanes(Floats& v) {
  const __m512 low = _mm512_shuffle_f32x4(v[0], v[1], 0x44);
  const __m512 low_more = _mm512_shuffle_f32x4(v[2], v[3], 0x44);
  const __m512 high = _mm512_shuffle_f32x4(v[0], v[1], 0xee);
  const __m512 high_more = _mm512_shuffle_f32x4(v[2], v[3], 0xee);
  v[0] = _mm512_shuffle_f32x4(low, low_more, 0x88);
  v[1] = _mm512_shuffle_f32x4(low, low_more, 0xdd);
  v[2] = _mm512_shuffle_f32x4(high, high_more, 0x88);
  v[3] = _mm512_shuffle_f32x4(high, high_more, 0xdd);
}

// A panel's scales in the order of the sums that they multiply.
struct LeafScales {
  alignas(64) float of[kPanelColumns];  // NOLINT(*-avoid-c-arrays)
};

// Makes leaves of Rows rows of their sums, which stay in registers. Returns the place of the first.
template <int Rows>
[[gnu::target("avx512f"), gnu::always_inline]] inline float* make_leaves(const StoredTileCall& call,
                                                                         std::int64_t leaf,
                                                                         const LeafScales& scales,
                                                                         Floats (&sums)[Rows]) {
  if (call.scales != nullptr) {
    for (auto& row : sums) {
      for (int j = 0; j < kVectors; ++j)
        row[j] = _mm512_mul_ps(row[j], _mm512_load_ps(scales.of + j * kLanes));
    }
  }
  float* slot = call.sums;
  for (int below = Leaves::slot_of(leaf); below > 0; --below, slot += call.slot_stride) {
    for (std::int64_t r = 0; r < Rows; ++r) {
      for (int j = 0; j < kVectors; ++j) {
        const float* node = slot + r * kPanelColumns + j * kLanes;
        sums[r][j] = _mm512_add_ps(_mm512_loadu_ps(node), sums[r][j]);
      }
    }
  }
  return slot;
}

}  // namespace plait::gemm
