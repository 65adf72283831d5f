// The loops of packing and widening in AVX2; what isn't here is the portable set's.
#include <immintrin.h>

#include <algorithm>

#include "gemm/x86/loops.h"

#define PLAIT_AVX2 gnu::target("avx2,f16c")

namespace plait::gemm {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kRow = kPanelColumns;
constexpr std::int64_t kLineWords = 16;

// Lines are asked for this many columns ahead: a transposition reads too many rows at once for the
// processor to see where they go.
constexpr std::int64_t kAhead = 32;

[[PLAIT_AVX2, gnu::always_inline]] inline __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[PLAIT_AVX2, gnu::always_inline]] inline void store(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

// Four words of row i in the lower half, and of row i + 4 in the upper one.
[[PLAIT_AVX2, gnu::always_inline]] inline __m256i load_halves(const std::byte* row,
                                                              std::int64_t stride) {
  const auto* low = reinterpret_cast<const __m128i*>(row);
  const auto* high = reinterpret_cast<const __m128i*>(row + 4 * stride);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                 _mm_loadu_si128(high), 1);
}

template <Stores stores>
[[PLAIT_AVX2, gnu::always_inline]] inline void store_as(std::uint32_t* to, __m256i value) {
  auto* at = reinterpret_cast<__m256i*>(to);
  if constexpr (stores == Stores::streamed) {
    _mm256_stream_si256(at, value);
  } else {
    _mm256_storeu_si256(at, value);
  }
}

// Four columns of eight rows become four rows of eight columns.
template <Stores stores>
[[PLAIT_AVX2, gnu::always_inline]] inline void turn_four(const std::byte* from, std::int64_t stride,
                                                         std::uint32_t* to,
                                                         std::int64_t to_stride) {
  const __m256i r0 = load_halves(from, stride);
  const __m256i r1 = load_halves(from + stride, stride);
  const __m256i r2 = load_halves(from + 2 * stride, stride);
  const __m256i r3 = load_halves(from + 3 * stride, stride);
  const __m256i low01 = _mm256_unpacklo_epi32(r0, r1);
  const __m256i high01 = _mm256_unpackhi_epi32(r0, r1);
  const __m256i low23 = _mm256_unpacklo_epi32(r2, r3);
  const __m256i high23 = _mm256_unpackhi_epi32(r2, r3);
  store_as<stores>(to, _mm256_unpacklo_epi64(low01, low23));
  store_as<stores>(to + to_stride, _mm256_unpackhi_epi64(low01, low23));
  store_as<stores>(to + 2 * to_stride, _mm256_unpacklo_epi64(high01, high23));
  store_as<stores>(to + 3 * to_stride, _mm256_unpackhi_epi64(high01, high23));
}

// Sixteen rows at a time, by a line of each, so that whole lines are written too.
template <Stores stores>
[[PLAIT_AVX2]] void turn_whole(const Words& from, std::uint32_t* to, std::int64_t to_stride) {
  for (std::int64_t i0 = 0; i0 < from.rows; i0 += kLineWords) {
    const std::int64_t i1 = std::min(i0 + kLineWords, from.rows);
    for (std::int64_t j0 = 0; j0 < from.cols; j0 += kLineWords) {
      const std::int64_t j1 = std::min(j0 + kLineWords, from.cols);
      for (std::int64_t i = i0; i < i1; ++i)
        _mm_prefetch(from.data + i * from.stride + (j0 + kAhead) * 4, _MM_HINT_T0);
      for (std::int64_t j = j0; j < j1; j += 4) {
        for (std::int64_t i = i0; i < i1; i += kLanes) {
          turn_four<stores>(from.data + i * from.stride + j * 4, from.stride,
                            to + j * to_stride + i, to_stride);
        }
      }
    }
  }
}

void transpose(const Words& from, std::uint32_t* to, std::int64_t to_stride, Stores stores) {
  const std::int64_t rows = from.rows / kLanes * kLanes;
  const std::int64_t cols = from.cols / 4 * 4;
  (stores == Stores::streamed
       ? turn_whole<Stores::streamed>
       : turn_whole<Stores::cached>)({from.data, from.stride, rows, cols}, to, to_stride);
  const auto turn_rest = portable_loops().transpose;
  turn_rest({from.data + cols * 4, from.stride, rows, from.cols - cols}, to + cols * to_stride,
            to_stride, stores);
  turn_rest({from.data + rows * from.stride, from.stride, from.rows - rows, from.cols}, to + rows,
            to_stride, stores);
}

template <Stores stores>
[[PLAIT_AVX2, gnu::always_inline]] inline void interleave_sixteen(const std::uint16_t* even,
                                                                  const std::uint16_t* odd,
                                                                  std::uint32_t* to) {
  const __m256i low = load(even);
  const __m256i high = load(odd);
  const __m256i first = _mm256_unpacklo_epi16(low, high);   // 0123 89ab
  const __m256i second = _mm256_unpackhi_epi16(low, high);  // 4567 cdef
  store_as<stores>(to, _mm256_permute2x128_si256(first, second, 0x20));
  store_as<stores>(to + kLanes, _mm256_permute2x128_si256(first, second, 0x31));
}

[[PLAIT_AVX2]] void interleave(const std::uint16_t* even, const std::uint16_t* odd, std::int64_t n,
                               std::uint32_t* to, Stores stores) {
  constexpr std::int64_t kHalves = 2 * kLanes;
  std::int64_t i = 0;
  for (; i + kHalves <= n; i += kHalves) {
    if (stores == Stores::streamed)
      interleave_sixteen<Stores::streamed>(even + i, odd + i, to + i);
    else
      interleave_sixteen<Stores::cached>(even + i, odd + i, to + i);
  }
  portable_loops().interleave(even + i, odd + i, n - i, to + i, stores);
}

[[PLAIT_AVX2]] void widen_bf16(const std::uint32_t* from, std::int64_t k, float* to) {
  for (std::int64_t i = 0; i < k / 2; ++i, from += kRow, to += 2 * kRow) {
    for (std::int64_t j = 0; j < kRow; j += kLanes) {
      const __m256i pairs = load(from + j);
      store(to + j, _mm256_slli_epi32(pairs, 16));
      store(to + kRow + j, _mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
    }
  }
}

// The low halves of eight words of at most 0xffff, as f32.
[[PLAIT_AVX2, gnu::always_inline]] inline __m256 widened(__m256i words) {
  const __m256i packed = _mm256_packus_epi32(words, words);  // 0123 0123 4567 4567
  return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

[[PLAIT_AVX2]] void widen_f16(const std::uint32_t* from, std::int64_t k, float* to) {
  for (std::int64_t i = 0; i < k / 2; ++i, from += kRow, to += 2 * kRow) {
    for (std::int64_t j = 0; j < kRow; j += kLanes) {
      const __m256i pairs = load(from + j);
      _mm256_storeu_ps(to + j, widened(_mm256_and_si256(pairs, _mm256_set1_epi32(0xffff))));
      _mm256_storeu_ps(to + kRow + j, widened(_mm256_srli_epi32(pairs, 16)));
    }
  }
}

Loops make() {
  Loops made = portable_loops();
  made.name = "avx2";
  made.needs = base::InstructionSet::avx2;
  made.transpose = transpose;
  made.interleave = interleave;
  made.widen_bf16 = widen_bf16;
  made.widen_f16 = widen_f16;
  return made;
}

}  // namespace

const Loops& avx2_loops() {
  static const Loops made = make();
  return made;
}

}  // namespace plait::gemm
