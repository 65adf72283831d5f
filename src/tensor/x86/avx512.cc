// Processes sixteen elements at a time, and the rest under a mask.
//
// The bf16 conversion is done with integers: the processor's own (AVX512_BF16) flushes denormals.
// The f16 conversions are the processor's: their rounding is fixed in the instruction, and they
// ignore the flush-to-zero flags, except for f32 denormals, which are 0 in f16 in any case.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensor/coded_rows.h"
#include "tensor/x86/kernels.h"

#define PLAIT_SUMS_TARGET gnu::target("avx512f,avx512bw,avx512vl")
#include "tensor/sums_in_vectors.h"

namespace plait::tensor {
namespace {

constexpr std::size_t kLanes = 16;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// `mask` is all ones except at the end of the array. Loads and stores touch its elements only.
template <Element T>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 load(
    const void* source, std::size_t i, __mmask16 mask) {
  const std::byte* from = static_cast<const std::byte*>(source) + i * sizeof(T);
  if constexpr (sizeof(T) == 4) {
    return _mm512_maskz_loadu_ps(mask, from);
  } else if constexpr (sizeof(T) == 1) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, from)));
  } else {
    const __m256i halves = _mm256_maskz_loadu_epi16(mask, from);
    if constexpr (kDtypeOf<T> == Dtype::f16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}

// The result is in the upper halves. It is right for numbers, infinities and the NaN of
// with_one_nan().
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512i rounded_to_bf16(
    __m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  return _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
}

template <bool AnyNan>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m256i to_bf16(
    __m512 value) {
  __m512i rounded = rounded_to_bf16(value);
  if constexpr (AnyNan) {
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    rounded =
        _mm512_mask_or_epi32(rounded, nan, _mm512_castps_si512(value), _mm512_set1_epi32(0x400000));
  }
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m128i to_s8(
    __m512 value) {
  const __mmask16 number = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
  const __m512 low = _mm512_maskz_max_ps(number, value, _mm512_set1_ps(-128));
  const __m512 clamped = _mm512_min_ps(low, _mm512_set1_ps(127));
  return _mm512_cvtepi32_epi8(_mm512_cvt_roundps_epi32(clamped, kNearest));
}

template <Element T, bool AnyNan>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void store(void* out,
                                                                                   std::size_t i,
                                                                                   __mmask16 mask,
                                                                                   __m512 value) {
  std::byte* to = static_cast<std::byte*>(out) + i * sizeof(T);
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, mask, value);
  } else if constexpr (sizeof(T) == 1) {
    _mm_mask_storeu_epi8(to, mask, to_s8(value));
  } else if constexpr (kDtypeOf<T> == Dtype::f16) {
    _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(value, kNearest));
  } else {
    _mm256_mask_storeu_epi16(to, mask, to_bf16<AnyNan>(value));
  }
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 with_one_nan(
    __m512 value) {
  // The table has one digit per class of numbers, quiet NaNs lowest. 3 returns 0xffc00000; 0 keeps
  // the value.
  return _mm512_fixupimm_ps(value, value, _mm512_set1_epi32(0x33), 0);
}

template <Element In>
struct MaskedElements {
  std::size_t i;
  __mmask16 mask;

  template <std::size_t Vectors>
  [[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] void operator()(
      const void* source, __m512 (&to)[Vectors]) const {
    for (std::size_t v = 0; v < Vectors; ++v) to[v] = load<In>(source, i + v * kLanes, mask);
  }
};

// Sums a group of vectors. It reads all sources before it writes, because `out` may be one of them.
// One: there is one source, to be converted.
template <Element In, Element Out, bool One, std::size_t Vectors>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void sum_group(
    void* out, const void* const* sources, int count, std::size_t i, __mmask16 mask) {
  __m512 total[Vectors];
  add_up(MaskedElements<In>{i, mask}, total, sources, One ? 1 : count);
  for (std::size_t v = 0; v < Vectors; ++v)
    store<Out, One>(out, i + v * kLanes, mask, One ? total[v] : with_one_nan(total[v]));
}

// Prefetches all lines of a group one KiB ahead. Another core has often just written the sources,
// so each line comes from that core's cache; prefetching puts more of these transfers under way at
// once. It never reaches beyond the end, because the bytes after a chunk may be about to be
// written.
template <Element In, Element Out, std::size_t Elements>
[[gnu::always_inline]] inline void fetch_ahead(void* out, const void* const* sources, int count,
                                               std::size_t i, std::size_t n) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kAhead = 1024 / sizeof(In);
  if (i + kAhead + Elements > n) return;
  for (int s = 0; s < count; ++s) {
    const std::byte* ahead = static_cast<const std::byte*>(sources[s]) + (i + kAhead) * sizeof(In);
    for (std::size_t byte = 0; byte < Elements * sizeof(In); byte += kLine)
      __builtin_prefetch(ahead + byte);
  }
  const std::byte* ahead = static_cast<std::byte*>(out) + (i + kAhead) * sizeof(Out);
  for (std::size_t byte = 0; byte < Elements * sizeof(Out); byte += kLine)
    __builtin_prefetch(ahead + byte, 1);
}

// Sums elements [i, n).
template <Element In, Element Out, bool One>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void sum_from(void* out, const void* const* sources,
                                                           int count, std::size_t i,
                                                           std::size_t n) {
  constexpr __mmask16 kAll = 0xffff;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
    fetch_ahead<In, Out, kUnroll * kLanes>(out, sources, count, i, n);
    sum_group<In, Out, One, kUnroll>(out, sources, count, i, kAll);
  }
  for (; i + kLanes <= n; i += kLanes) sum_group<In, Out, One, 1>(out, sources, count, i, kAll);
  if (i < n) {
    const auto rest = static_cast<__mmask16>((1U << (n - i)) - 1U);
    sum_group<In, Out, One, 1>(out, sources, count, i, rest);
  }
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512i load_pairs(
    const void* source, std::size_t i) {
  return _mm512_loadu_si512(static_cast<const std::byte*>(source) + i * sizeof(Bf16));
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 even_elements(
    __m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline __m512 odd_elements(
    __m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}

// Reads two vectors of pairs: from each the even elements, then the odd ones.
struct Pairs {
  std::size_t i;

  [[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] void operator()(
      const void* source, __m512 (&to)[4]) const {
    for (std::size_t v = 0; v < 2; ++v) {
      const __m512i pairs = load_pairs(source, i + v * 2 * kLanes);
      to[2 * v] = even_elements(pairs);
      to[2 * v + 1] = odd_elements(pairs);
    }
  }
};

// Sums bf16 to bf16 in pairs: a shift makes the even element an f32, and a mask the odd one, so
// nothing needs to be unpacked or packed. Returns the number of elements summed.
[[gnu::target("avx512f,avx512bw,avx512vl")]] std::size_t sum_bf16_pairs(void* out,
                                                                        const void* const* sources,
                                                                        int count, std::size_t n) {
  constexpr std::size_t kPairs = 2 * kLanes;
  std::size_t i = 0;
  for (; i + 2 * kPairs <= n; i += 2 * kPairs) {
    fetch_ahead<Bf16, Bf16, 2 * kPairs>(out, sources, count, i, n);
    __m512 total[4];
    add_up(Pairs{i}, total, sources, count);
    for (std::size_t v = 0; v < 2; ++v) {
      const __m512i low = _mm512_srli_epi32(rounded_to_bf16(with_one_nan(total[2 * v])), 16);
      const __m512i both =
          _mm512_mask_mov_epi16(low, 0xaaaaaaaaU, rounded_to_bf16(with_one_nan(total[2 * v + 1])));
      _mm512_storeu_si512(static_cast<std::byte*>(out) + (i + v * kPairs) * sizeof(Bf16), both);
    }
  }
  return i;
}

template <Element In, Element Out>
void sum(void* out, const void* const* sources, int count, std::size_t n) {
  if (count == 1) {
    sum_from<In, Out, true>(out, sources, count, 0, n);
    return;
  }
  constexpr bool kInPairs = std::same_as<In, Bf16> && std::same_as<Out, Bf16>;
  const std::size_t done = kInPairs ? sum_bf16_pairs(out, sources, count, n) : 0;
  sum_from<In, Out, false>(out, sources, count, done, n);
}

// The number of elements before `out` reaches the start of a cache line; n if it never does.
std::size_t elements_to_line(const void* out, std::size_t n) {
  constexpr std::size_t kLine = 64;
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(out) % kLine;
  if (beyond % sizeof(float) != 0) return n;
  return std::min(n, (kLine - beyond) % kLine / sizeof(float));
}

// Sums elements [i, n) into `kept`, then copies them to `out`, through the caches.
void sum_and_copy(void* out, void* kept, const void* const* sources, int count, std::size_t i,
                  std::size_t n) {
  sum_from<float, float, false>(kept, sources, count, i, n);
  const std::size_t begin = i * sizeof(float);
  std::memcpy(static_cast<std::byte*>(out) + begin, static_cast<std::byte*>(kept) + begin,
              (n - i) * sizeof(float));
}

[[gnu::target("avx512f,avx512bw,avx512vl")]] void streamed_sum(void* out, void* kept,
                                                               const void* const* sources,
                                                               int count, std::size_t n) {
  constexpr __mmask16 kAll = 0xffff;
  constexpr std::size_t kGroup = kUnroll * kLanes;
  std::size_t i = elements_to_line(out, n);
  sum_and_copy(out, kept, sources, count, 0, i);
  for (; i + kGroup <= n; i += kGroup) {
    fetch_ahead<float, float, kGroup>(kept, sources, count, i, n);
    __m512 total[kUnroll];
    add_up(MaskedElements<float>{i, kAll}, total, sources, count);
    for (std::size_t v = 0; v < kUnroll; ++v) {
      const __m512 value = with_one_nan(total[v]);
      store<float, false>(kept, i + v * kLanes, kAll, value);
      _mm512_stream_ps(static_cast<float*>(out) + i + v * kLanes, value);
    }
  }
  sum_and_copy(out, kept, sources, count, i, n);
}

constexpr std::size_t kGroup = kScaleGroup;
constexpr std::size_t kGroupVectors = kGroup / kLanes;

// The elements of a vector that lie before the end of a group with n of them.
__mmask16 mask_of(std::size_t vector, std::size_t n) {
  const std::size_t begin = vector * kLanes;
  if (n >= begin + kLanes) return 0xffff;
  return n <= begin ? __mmask16{0} : static_cast<__mmask16>((1U << (n - begin)) - 1U);
}

template <bool Whole>
[[gnu::target("avx512f,avx512bw,avx512vl"), gnu::always_inline]] inline void encode_group(
    const Coded& to, const float* from, std::size_t n) {
  __m512 values[kGroupVectors];
  __m512i largest = _mm512_setzero_si512();
  for (std::size_t v = 0; v < kGroupVectors; ++v) {
    values[v] = _mm512_maskz_loadu_ps(Whole ? 0xffff : mask_of(v, n), from + v * kLanes);
    const __m512i bits = _mm512_castps_si512(values[v]);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  const Bf16 scale = scale_of(_mm512_reduce_max_epu32(largest));
  std::memcpy(to.scales, &scale, sizeof(scale));
  const float inverse = inverse_of(scale);
  if (inverse == 0) {
    std::memset(to.codes, 0, n);
    return;
  }
  for (std::size_t v = 0; v < kGroupVectors; ++v) {
    const __m512 scaled = _mm512_mul_ps(values[v], _mm512_set1_ps(inverse));
    const __m128i codes = _mm512_cvtepi32_epi8(_mm512_cvt_roundps_epi32(scaled, kNearest));
    _mm_mask_storeu_epi8(to.codes + v * kLanes, Whole ? 0xffff : mask_of(v, n), codes);
  }
}

[[gnu::target("avx512f,avx512bw,avx512vl")]] void encode(const Coded& to, const float* from,
                                                         std::size_t n) {
  std::size_t i = 0;
  const auto at = [&] {
    return Coded{.codes = to.codes + i, .scales = to.scales + i / kGroup * sizeof(Bf16)};
  };
  for (; i + kGroup <= n; i += kGroup) encode_group<true>(at(), from + i, kGroup);
  if (i < n) encode_group<false>(at(), from + i, n - i);
}

[[gnu::target("avx512f,avx512bw,avx512vl")]] void decode(float* to, const std::byte* codes,
                                                         const std::byte* scales, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kGroup) {
    Bf16 scale;
    std::memcpy(&scale, scales + i / kGroup * sizeof(Bf16), sizeof(scale));
    const __m512 factor = _mm512_set1_ps(static_cast<float>(scale));
    for (std::size_t v = 0; v < kGroupVectors; ++v) {
      const __mmask16 mask = mask_of(v, n - i);
      const std::size_t at = i + v * kLanes;
      _mm512_mask_storeu_ps(to + at, mask,
                            _mm512_mul_ps(load<std::int8_t>(codes, at, mask), factor));
    }
  }
}

template <Element In>
constexpr std::array<Sum, kDtypes> kRow = {sum<In, float>, sum<In, Bf16>, sum<In, F16>,
                                           sum<In, std::int8_t>};

constexpr Kernels kSet = {.name = "avx512",
                          .needs = base::InstructionSet::avx512,
                          .sums = {kRow<float>, kRow<Bf16>, kRow<F16>, kRow<std::int8_t>},
                          .encode = encode,
                          .decode = decode,
                          .streamed_sum = streamed_sum};

}  // namespace

const Kernels& avx512_kernels() { return kSet; }

}  // namespace plait::tensor
