// Processes eight elements at a time, and the last few through padded copies.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "tensor/coded_rows.h"
#include "tensor/x86/kernels.h"

#define PLAIT_SUMS_TARGET gnu::target("avx2,f16c")
#include "tensor/sums_in_vectors.h"

namespace plait::tensor {
namespace {

constexpr std::size_t kLanes = 8;
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

template <Element T>
[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256 load(const void* source,
                                                                    std::size_t i) {
  const std::byte* from = static_cast<const std::byte*>(source) + i * sizeof(T);
  if constexpr (sizeof(T) == 4) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  } else if constexpr (sizeof(T) == 1) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (kDtypeOf<T> == Dtype::f16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

// The low halves of eight 32-bit values, none of which exceeds 0xffff.
[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m128i low_halves(__m256i values) {
  const __m256i packed = _mm256_packus_epi32(values, values);  // 0123 0123 4567 4567
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

// The result is in the upper halves. It is right for numbers, infinities and the NaN of
// with_one_nan().
[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256i rounded_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
}

template <bool AnyNan>
[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m128i to_bf16(__m256 value) {
  __m256i rounded = rounded_to_bf16(value);
  if constexpr (AnyNan) {
    const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, quiet, nan);
  }
  return low_halves(_mm256_srli_epi32(rounded, 16));
}

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m128i to_s8(__m256 value) {
  const __m256 number = _mm256_and_ps(value, _mm256_cmp_ps(value, value, _CMP_ORD_Q));
  const __m256 low = _mm256_max_ps(number, _mm256_set1_ps(-128));
  const __m256 clamped = _mm256_min_ps(low, _mm256_set1_ps(127));
  const __m256i whole = _mm256_cvttps_epi32(_mm256_round_ps(clamped, kNearest));
  const __m128i halves =
      _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_packs_epi16(halves, halves);
}

template <Element T, bool AnyNan>
[[gnu::target("avx2,f16c"), gnu::always_inline]] inline void store(void* out, std::size_t i,
                                                                   __m256 value) {
  std::byte* to = static_cast<std::byte*>(out) + i * sizeof(T);
  if constexpr (sizeof(T) == 4) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castps_si256(value));
  } else if constexpr (sizeof(T) == 1) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), to_s8(value));
  } else if constexpr (kDtypeOf<T> == Dtype::f16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, kNearest));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), to_bf16<AnyNan>(value));
  }
}

struct Avx2 {
  using Vector = __m256;
  static constexpr std::size_t kLanes = tensor::kLanes;

  template <Element T>
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static Vector load(const void* source,
                                                                      std::size_t i) {
    return tensor::load<T>(source, i);
  }
  template <Element T, bool AnyNan>
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static void store(void* out, std::size_t i,
                                                                     Vector value) {
    tensor::store<T, AnyNan>(out, i, value);
  }
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static Vector with_one_nan(Vector value) {
    const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    const __m256i bits = _mm256_set1_epi32(static_cast<int>(0xffc00000U));
    return _mm256_blendv_ps(value, _mm256_castsi256_ps(bits), nan);
  }
};

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256i load_pairs(const void* source,
                                                                           std::size_t i) {
  const std::byte* from = static_cast<const std::byte*>(source) + i * sizeof(Bf16);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256 even_elements(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256 odd_elements(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
}

// Reads the even elements, then the odd ones.
struct Pairs {
  std::size_t i;

  [[gnu::target("avx2,f16c"), gnu::always_inline]] void operator()(const void* source,
                                                                   __m256 (&to)[2]) const {
    const __m256i pairs = load_pairs(source, i);
    to[0] = even_elements(pairs);
    to[1] = odd_elements(pairs);
  }
};

// Sums bf16 to bf16 in pairs: a shift makes the even element an f32, and a mask the odd one, so
// nothing needs to be unpacked or packed. Returns the number of elements summed.
[[gnu::target("avx2,f16c")]] std::size_t sum_bf16_pairs(void* out, const void* const* sources,
                                                        int count, std::size_t n) {
  constexpr std::size_t kPairs = 2 * kLanes;
  std::size_t i = 0;
  for (; i + kPairs <= n; i += kPairs) {
    __m256 total[2];
    add_up(Pairs{i}, total, sources, count);
    const __m256i low = _mm256_srli_epi32(rounded_to_bf16(Avx2::with_one_nan(total[0])), 16);
    const __m256i both =
        _mm256_blend_epi16(low, rounded_to_bf16(Avx2::with_one_nan(total[1])), 0xaa);
    std::byte* to = static_cast<std::byte*>(out) + i * sizeof(Bf16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), both);
  }
  return i;
}

template <Element In, Element Out>
void sum(void* out, const void* const* sources, int count, std::size_t n) {
  if (count == 1) {
    sum_from<Avx2, In, Out, true>(out, sources, count, 0, n);
    return;
  }
  constexpr bool kInPairs = std::same_as<In, Bf16> && std::same_as<Out, Bf16>;
  const std::size_t done = kInPairs ? sum_bf16_pairs(out, sources, count, n) : 0;
  sum_from<Avx2, In, Out, false>(out, sources, count, done, n);
}

constexpr std::size_t kGroup = kScaleGroup;
constexpr std::size_t kGroupVectors = kGroup / kLanes;

// 32 codes of four vectors of whole numbers, -127 to 127.
[[gnu::target("avx2,f16c"), gnu::always_inline]] inline __m256i packed_codes(
    const __m256i (&whole)[4]) {
  const __m256i low = _mm256_packs_epi32(whole[0], whole[1]);
  const __m256i high = _mm256_packs_epi32(whole[2], whole[3]);
  // Packing works in halves of a vector, so groups of four codes come out as 0 2 4 6 1 3 5 7, and
  // are put in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline std::uint32_t largest_of(__m256i values) {
  __m128i rest = _mm_max_epu32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, _MM_SHUFFLE(1, 0, 3, 2)));
  rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, _MM_SHUFFLE(2, 3, 0, 1)));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(rest));
}

[[gnu::target("avx2,f16c"), gnu::always_inline]] inline void encode_group(const Coded& to,
                                                                          const float* from) {
  __m256 values[kGroupVectors];
  __m256i largest = _mm256_setzero_si256();
  for (std::size_t v = 0; v < kGroupVectors; ++v) {
    values[v] = load<float>(from, v * kLanes);
    const __m256i bits = _mm256_castps_si256(values[v]);
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  const Bf16 scale = scale_of(largest_of(largest));
  std::memcpy(to.scales, &scale, sizeof(scale));
  const float inverse = inverse_of(scale);
  if (inverse == 0) {
    std::memset(to.codes, 0, kGroup);
    return;
  }
  const __m256 factor = _mm256_set1_ps(inverse);
  for (std::size_t v = 0; v < kGroupVectors; v += 4) {
    __m256i whole[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const __m256 scaled = _mm256_mul_ps(values[v + i], factor);
      whole[i] = _mm256_cvttps_epi32(_mm256_round_ps(scaled, kNearest));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.codes + v * kLanes), packed_codes(whole));
  }
}

[[gnu::target("avx2,f16c")]] void encode(const Coded& to, const float* from, std::size_t n) {
  std::size_t i = 0;
  std::byte* scale = to.scales;
  for (; i + kGroup <= n; i += kGroup, scale += sizeof(Bf16))
    encode_group({.codes = to.codes + i, .scales = scale}, from + i);
  if (i == n) return;
  std::array<float, kGroup> padded = {};
  std::array<std::byte, kGroup> codes;  // NOLINT(*-member-init): written by encode_group()
  std::memcpy(padded.data(), from + i, (n - i) * sizeof(float));
  encode_group({.codes = codes.data(), .scales = scale}, padded.data());
  std::memcpy(to.codes + i, codes.data(), n - i);
}

[[gnu::target("avx2,f16c")]] void decode(float* to, const std::byte* codes, const std::byte* scales,
                                         std::size_t n) {
  std::size_t i = 0;
  for (; i < n; scales += sizeof(Bf16)) {
    Bf16 scale;
    std::memcpy(&scale, scales, sizeof(scale));
    const auto factor = static_cast<float>(scale);
    const std::size_t end = std::min(n, i + kGroup);
    for (; i + kLanes <= end; i += kLanes) {
      const __m256 values = load<std::int8_t>(codes, i);
      store<float, false>(to, i, _mm256_mul_ps(values, _mm256_set1_ps(factor)));
    }
    for (; i < end; ++i) to[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * factor;
  }
}

template <Element In>
constexpr std::array<Sum, kDtypes> kRow = {sum<In, float>, sum<In, Bf16>, sum<In, F16>,
                                           sum<In, std::int8_t>};

constexpr Kernels kSet = {.name = "avx2",
                          .needs = base::InstructionSet::avx2,
                          .sums = {kRow<float>, kRow<Bf16>, kRow<F16>, kRow<std::int8_t>},
                          .encode = encode,
                          .decode = decode};

}  // namespace

const Kernels& avx2_kernels() { return kSet; }

}  // namespace plait::tensor
