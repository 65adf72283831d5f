// The loops in AVX-512: a row of 64 words is four registers.
#include <immintrin.h>

#include <algorithm>
#include <array>

#include "gemm/x86/loops.h"
#include "gemm/x86/rounded.h"
#include "gemm/x86/stored_rows.h"

#define PLAIT_AVX512 gnu::target("avx512f,avx512bw,avx512vl,avx512dq")

namespace plait::gemm {
namespace {

constexpr std::int64_t kRow = kPanelColumns;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

[[PLAIT_AVX512, gnu::always_inline]] inline __mmask16 mask_of(std::int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffffU : (1U << n) - 1U);
}

// Not a std::array: a template's argument would lose the alignment that the type has.
struct Square {
  __m512i row[kLanes];  // NOLINT(*-avoid-c-arrays)
};

// Lane j of row i becomes lane i of row j: four rounds that exchange blocks of 1, 2, 4 and 8 lanes.
[[PLAIT_AVX512, gnu::always_inline]] inline void transpose_square(Square& square) {
  __m512i(&r)[kLanes] = square.row;  // NOLINT(*-avoid-c-arrays)
  __m512i t[kLanes];                 // NOLINT(*-avoid-c-arrays)
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < kLanes; i += 8) {
    for (std::int64_t j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
    }
  }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
  }
}

// Lines are asked for this many columns ahead: a transposition reads too many rows at once for the
// processor to see where they go. Into the second cache, since rows a power of two of bytes apart
// drive one another out of the first: one row of X times a weight in memory gets 1.2 times as fast.
constexpr std::int64_t kAhead = 128;

[[PLAIT_AVX512, gnu::always_inline]] inline void store_row(std::uint32_t* to, __mmask16 mask,
                                                           Stores stores, __m512i row) {
  if (stores == Stores::streamed && mask == 0xffff)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), row);
  else
    _mm512_mask_storeu_epi32(to, mask, row);
}

[[PLAIT_AVX512]] void transpose(const Words& from, std::uint32_t* to, std::int64_t to_stride,
                                Stores stores) {
  for (std::int64_t i0 = 0; i0 < from.rows; i0 += kLanes) {
    const std::int64_t rows = std::min(kLanes, from.rows - i0);
    for (std::int64_t j0 = 0; j0 < from.cols; j0 += kLanes) {
      const std::int64_t cols = std::min(kLanes, from.cols - j0);
      const __mmask16 in = mask_of(cols);
      const std::byte* source = from.data + i0 * from.stride + j0 * 4;
      Square square;
      auto& r = square.row;
      for (int i = 0; i < kLanes; ++i) {
        r[i] = _mm512_setzero_si512();
        if (i < rows) {
          r[i] = _mm512_maskz_loadu_epi32(in, source + i * from.stride);
          _mm_prefetch(source + i * from.stride + kAhead * 4, _MM_HINT_T1);
        }
      }
      transpose_square(square);
      const __mmask16 out = mask_of(rows);
      std::uint32_t* target = to + j0 * to_stride + i0;
      for (int j = 0; j < kLanes; ++j) {
        if (j < cols) store_row(target + j * to_stride, out, stores, r[j]);
      }
    }
  }
}

[[PLAIT_AVX512]] void interleave(const std::uint16_t* even, const std::uint16_t* odd,
                                 std::int64_t n, std::uint32_t* to, Stores stores) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = mask_of(n - i);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + i));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd + i));
    store_row(to + i, mask, stores, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

[[PLAIT_AVX512]] void widen_bf16(const std::uint32_t* from, std::int64_t k, float* to) {
  for (std::int64_t i = 0; i < k / 2; ++i, from += kRow, to += 2 * kRow) {
    for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
      const __m512i pairs = _mm512_loadu_si512(from + j);
      _mm512_storeu_si512(to + j, _mm512_slli_epi32(pairs, 16));
      _mm512_storeu_si512(to + kPanelColumns + j,
                          _mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
    }
  }
}

[[PLAIT_AVX512]] void widen_f16(const std::uint32_t* from, std::int64_t k, float* to) {
  for (std::int64_t i = 0; i < k / 2; ++i, from += kRow, to += 2 * kRow) {
    for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
      const __m512i pairs = _mm512_loadu_si512(from + j);
      const __m256i even = _mm512_cvtepi32_epi16(pairs);
      const __m256i odd = _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16));
      _mm512_storeu_ps(to + j, _mm512_cvtph_ps(even));
      _mm512_storeu_ps(to + kPanelColumns + j, _mm512_cvtph_ps(odd));
    }
  }
}

// Sixteen columns' values at an even k and at the odd one after it.
struct Pair {
  __m512 even;
  __m512 odd;
};

// s4 by a table that the instruction indexes with the lowest four bits.
template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline Pair load_values(const std::int8_t* from,
                                                             std::int64_t j,
                                                             const std::int8_t* offsets) {
  Pair pair;
  if constexpr (stored == Storage::s8) {
    const auto* bytes = reinterpret_cast<const __m256i*>(from + 2 * j);
    const __m512i both = _mm512_cvtepi16_epi32(_mm256_loadu_si256(bytes));
    pair.even = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(both, 24), 24));
    pair.odd = _mm512_cvtepi32_ps(_mm512_srai_epi32(both, 8));
  } else {
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const auto* bytes = reinterpret_cast<const __m128i*>(from + j);
    const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes));
    pair.even = _mm512_permutexvar_ps(both, table);
    pair.odd = _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), table);
  }
  if (offsets == nullptr) return pair;
  const auto* bytes = reinterpret_cast<const __m128i*>(offsets + j);
  const __m512 offset = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes)));
  return {.even = _mm512_add_ps(pair.even, offset), .odd = _mm512_add_ps(pair.odd, offset)};
}

template <Storage stored>
[[PLAIT_AVX512]] void to_f32(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets,
                             float* to) {
  for (std::int64_t i = 0; i < k / 2; ++i, to += 2 * kRow) {
    ask_ahead(from, stored);
    for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
      const Pair pair = load_values<stored>(from, j, offsets);
      _mm512_storeu_ps(to + j, pair.even);
      _mm512_storeu_ps(to + kPanelColumns + j, pair.odd);
    }
    from += row_bytes(stored);
  }
}

// Whole numbers up to 256 have no digits in the lower half of their f32: the upper is the bf16.
template <Storage stored>
[[PLAIT_AVX512]] void to_bf16(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets,
                              std::uint32_t* to) {
  for (std::int64_t i = 0; i < k / 2; ++i, to += kPanelColumns) {
    ask_ahead(from, stored);
    for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
      const Pair pair = load_values<stored>(from, j, offsets);
      const __m512i even = _mm512_castps_si512(pair.even);
      const __m512i odd = _mm512_castps_si512(pair.odd);
      _mm512_storeu_si512(to + j, _mm512_or_si512(odd, _mm512_srli_epi32(even, 16)));
    }
    from += row_bytes(stored);
  }
}

// Without offsets a table of bf16 gives both of a byte's: a word's lowest five bits are the index,
// and the table's halves are the same.
[[PLAIT_AVX512]] void s4_to_bf16(const std::int8_t* from, std::int64_t k,
                                 const std::int8_t* offsets, std::uint32_t* to) {
  if (offsets != nullptr) return to_bf16<Storage::s4>(from, k, offsets, to);
  alignas(64) std::array<std::uint16_t, 32> halves;  // NOLINT(*-member-init): written next
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i] = Bf16(static_cast<float>((static_cast<int>(i & 15) ^ 8) - 8)).bits;
  const __m512i table = _mm512_load_si512(halves.data());
  for (std::int64_t i = 0; i < k / 2; ++i, from += kRow, to += kPanelColumns) {
    ask_ahead(from, Storage::s4);
    for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
      const auto* bytes = reinterpret_cast<const __m128i*>(from + j);
      const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes));
      const __m512i words = _mm512_or_si512(both, _mm512_slli_epi32(both, 12));
      _mm512_storeu_si512(to + j, _mm512_permutexvar_epi16(words, table));
    }
  }
}

// A row's leaf stays in registers from piece to piece, until it goes to its slot.
template <bool AddUp>
[[PLAIT_AVX512]] void add_to_leaf(const PieceSums& from, std::int64_t rows, const Slots& slots) {
  const Piece& last = from.pieces.back();
  const int slot = Leaves::slot_of(last.leaf);
  const int nodes = last.ends_leaf ? slot : 0;
  const auto pieces = static_cast<int>(from.pieces.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* node = slots.sums + row * kRow;
    float* const to = slots.sums + slot * slots.stride + row * kRow;
    const float* sums = from.sums + row * kRow;
    const float* scales = from.scales;
    Floats leaf;
    for (int j = 0; j < kVectors; ++j)
      leaf[j] = from.begins_leaf ? _mm512_setzero_ps() : _mm512_loadu_ps(to + j * kLanes);
    for (int piece = 0; piece < pieces; ++piece, sums += rows * kRow, scales += from.scales_step) {
      for (int j = 0; j < kVectors; ++j) {
        __m512 sum = _mm512_loadu_ps(sums + j * kLanes);
        if (scales != nullptr) sum = _mm512_mul_ps(sum, _mm512_loadu_ps(scales + j * kLanes));
        leaf[j] = AddUp ? _mm512_add_ps(leaf[j], sum) : sum;
      }
    }
    for (int below = 0; below < nodes; ++below, node += slots.stride) {
      for (int j = 0; j < kVectors; ++j)
        leaf[j] = _mm512_add_ps(_mm512_loadu_ps(node + j * kLanes), leaf[j]);
    }
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(to + j * kLanes, leaf[j]);
  }
}

void add_to_leaves(const PieceSums& from, int rows, const Slots& slots) {
  for_each_leaf(from, rows, [&](const PieceSums& leaf) {
    (from.add_up ? add_to_leaf<true> : add_to_leaf<false>)(leaf, rows, slots);
  });
}

[[PLAIT_AVX512, gnu::always_inline]] inline __m256i to_bf16(__m512 value) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_to_bf16(value), 16));
}

template <Dtype dtype>
[[PLAIT_AVX512, gnu::always_inline]] inline __m512 load(const void* from, __mmask16 mask) {
  if constexpr (dtype == Dtype::f32) return _mm512_maskz_loadu_ps(mask, from);
  const __m256i halves = _mm256_maskz_loadu_epi16(mask, from);
  if constexpr (dtype == Dtype::f16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <Dtype dtype>
[[PLAIT_AVX512, gnu::always_inline]] inline void store(void* to, __mmask16 mask, __m512 value) {
  if constexpr (dtype == Dtype::f32) {
    _mm512_mask_storeu_ps(to, mask, value);
  } else if constexpr (dtype == Dtype::f16) {
    _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(value, kNearest));
  } else {
    _mm256_mask_storeu_epi16(to, mask, to_bf16(value));
  }
}

// Columns [j, j + 16), as far as `mask` has them, before they are rounded.
template <Dtype dtype>
[[PLAIT_AVX512, gnu::always_inline]] inline __m512 finished(const Finish& how, const float* sums,
                                                            std::int64_t j, __mmask16 mask,
                                                            const void* out) {
  __m512 y = _mm512_maskz_loadu_ps(mask, sums + j);
  if (how.scales != nullptr) y = _mm512_mul_ps(y, _mm512_maskz_loadu_ps(mask, how.scales + j));
  if (how.bias != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, how.bias + j));
  if (how.accumulate) y = _mm512_add_ps(y, load<dtype>(out, mask));
  return with_one_nan(y);
}

template <Dtype dtype>
[[PLAIT_AVX512, gnu::always_inline]] inline void finish_row(const Finish& how, const float* sums,
                                                            std::int64_t n, void* out) {
  constexpr __mmask16 kAll = 0xffff;
  auto* to = static_cast<std::byte*>(out);
  constexpr auto kBytes = kLanes * static_cast<std::int64_t>(size_of(dtype));
  std::int64_t j = 0;
  if constexpr (dtype == Dtype::bf16) {
    for (; j + 2 * kLanes <= n; j += 2 * kLanes, to += 2 * kBytes) {
      const __m512 low = finished<dtype>(how, sums, j, kAll, to);
      const __m512 high = finished<dtype>(how, sums, j + kLanes, kAll, to + kBytes);
      store_as_bf16(to, low, high);
    }
  }
  for (; j < n; j += kLanes, to += kBytes) {
    const __mmask16 mask = mask_of(n - j);
    store<dtype>(to, mask, finished<dtype>(how, sums, j, mask, to));
  }
}

template <Dtype dtype>
[[PLAIT_AVX512]] void finish_rows(const Finish& how, const float* sums, const TensorView& out) {
  for (std::int64_t i = 0; i < out.rows; ++i, sums += kPanelColumns)
    finish_row<dtype>(how, sums, out.cols, out.row(i));
}

// Most rows are whole, and nothing is left to be added to their sums: such loops know it.
template <Dtype dtype>
[[PLAIT_AVX512]] void finish_as(const Finish& how, const float* sums, const TensorView& out) {
  const bool is_sum = how.scales == nullptr && how.bias == nullptr && !how.accumulate;
  if (!is_sum || out.cols != kPanelColumns) return finish_rows<dtype>(how, sums, out);
  constexpr Finish kPlain = {.scales = nullptr, .bias = nullptr, .accumulate = false};
  for (std::int64_t i = 0; i < out.rows; ++i, sums += kPanelColumns)
    finish_row<dtype>(kPlain, sums, kPanelColumns, out.row(i));
}

[[PLAIT_AVX512]] void finish(const Finish& how, const float* sums, const TensorView& out) {
  switch (out.dtype) {
    case Dtype::f32:
      return finish_as<Dtype::f32>(how, sums, out);
    case Dtype::bf16:
      return finish_as<Dtype::bf16>(how, sums, out);
    case Dtype::f16:
      return finish_as<Dtype::f16>(how, sums, out);
    case Dtype::s8:
      break;  // refused before
  }
}

constexpr Loops kAvx512 = {.name = "avx512",
                           .needs = base::InstructionSet::avx512,
                           .transpose = transpose,
                           .interleave = interleave,
                           .widen_bf16 = widen_bf16,
                           .widen_f16 = widen_f16,
                           .s8_to_f32 = to_f32<Storage::s8>,
                           .s4_to_f32 = to_f32<Storage::s4>,
                           .s8_to_bf16 = to_bf16<Storage::s8>,
                           .s4_to_bf16 = s4_to_bf16,
                           .add_to_leaves = add_to_leaves,
                           .finish = finish};

}  // namespace

const Loops& avx512_loops() { return kAvx512; }

}  // namespace plait::gemm
