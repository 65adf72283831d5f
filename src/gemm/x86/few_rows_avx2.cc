// Values are turned into f32 by what costs the fewest instructions: bf16 by shifting and masking,
// f16 by the instruction for it, s8 and s4 by shifts that extend the sign.
#include <immintrin.h>

#include <cstring>

#include "base/instruction_set.h"
#include "gemm/few_rows.h"

#define PLAIT_AVX2 gnu::target("avx2,fma,f16c")

namespace plait::gemm {
namespace {

constexpr std::int64_t kLanes = 8;

// The sums of so many rows have room in 16 registers, beside what the rows are multiplied by.
constexpr int kMostRows = 6;

// Vectors of a row of a panel whose sums are in registers at once: the panel is passed through for
// each 64 columns, 32 or 16.
constexpr int vectors(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

// Bytes of eight columns' pairs of k.
constexpr std::int64_t vector_bytes(Storage stored) {
  return kLanes * static_cast<std::int64_t>(bits_of(stored)) / 4;
}
constexpr std::int64_t row_bytes(Storage stored) {
  return kPanelColumns / kLanes * vector_bytes(stored);
}

[[PLAIT_AVX2, gnu::always_inline]] inline __m256i load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// The low halves of eight words of at most 0xffff, as f32.
[[PLAIT_AVX2, gnu::always_inline]] inline __m256 widened(__m256i words) {
  const __m256i packed = _mm256_packus_epi32(words, words);  // 0123 0123 4567 4567
  return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

// 8 columns' values at the even k of a pair, or at the odd one after it.
template <Storage stored, bool Odd>
[[PLAIT_AVX2, gnu::always_inline]] inline __m256 values_of(const std::byte* from) {
  if constexpr (stored == Storage::bf16) {
    const __m256i both = load(from);
    return _mm256_castsi256_ps(Odd ? _mm256_and_si256(both, _mm256_set1_epi32(-0x10000))
                                   : _mm256_slli_epi32(both, 16));
  } else if constexpr (stored == Storage::f16) {
    const __m256i both = load(from);
    return widened(Odd ? _mm256_srli_epi32(both, 16)
                       : _mm256_and_si256(both, _mm256_set1_epi32(0xffff)));
  } else {
    constexpr int kBits = static_cast<int>(bits_of(stored));
    const __m256i both =
        stored == Storage::s8
            ? _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))
            : _mm256_cvtepi8_epi32(_mm_loadu_si64(from));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(Odd ? both : _mm256_slli_epi32(both, 32 - kBits),
                                                Odd ? kBits : 32 - kBits));
  }
}

[[PLAIT_AVX2, gnu::always_inline]] inline __m256 broadcast(const std::byte* from) {
  float value;  // NOLINT(*-init-variables): X may be aligned to bytes only
  std::memcpy(&value, from, sizeof(value));
  return _mm256_set1_ps(value);
}

// Lines are asked for into the second cache far ahead, and into the first shortly before their use.
template <Storage stored, int Vectors>
[[PLAIT_AVX2, gnu::always_inline]] inline void ask_ahead(const std::byte* from) {
  constexpr std::int64_t kFarAhead = 32768;
  constexpr std::int64_t kNearAhead = 2048;
  for (std::int64_t line = 0; line < Vectors * vector_bytes(stored); line += 64) {
    _mm_prefetch(from + kFarAhead + line, _MM_HINT_T1);
    _mm_prefetch(from + kNearAhead + line, _MM_HINT_T0);
  }
}

// Rows by the even or the odd ones of a row of pairs.
template <Storage stored, bool Odd, bool Shifted, int Rows, int Vectors>
[[PLAIT_AVX2, gnu::always_inline]] inline void add_row(const std::byte* x, std::int64_t row_stride,
                                                       const std::byte* panel,
                                                       const __m256 (&offsets)[Vectors],
                                                       __m256 (&sums)[Rows][Vectors]) {
  constexpr int kAtOnce = Vectors < 4 ? Vectors : 4;  // whose values have registers
#pragma GCC unroll 8
  for (std::int64_t j0 = 0; j0 < Vectors; j0 += kAtOnce) {
    __m256 values[kAtOnce];  // NOLINT(*-avoid-c-arrays): an std::array loses the alignment
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kAtOnce; ++j) {
      values[j] = values_of<stored, Odd>(panel + (j0 + j) * vector_bytes(stored));
      if constexpr (Shifted) values[j] = _mm256_add_ps(values[j], offsets[j0 + j]);
    }
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < Rows; ++r) {
      const __m256 same = broadcast(x + r * row_stride);
#pragma GCC unroll 8
      for (std::int64_t j = 0; j < kAtOnce; ++j)
        sums[r][j0 + j] = _mm256_fmadd_ps(same, values[j], sums[r][j0 + j]);
    }
  }
}

// Rows by the columns from `column` on.
template <Storage stored, bool Shifted, int Rows>
[[PLAIT_AVX2]] void multiply_columns(const StoredTileCall& call, std::int64_t column) {
  constexpr int kVectors = vectors(Rows);
  float* const to = call.sums + column;
  __m256 sums[Rows][kVectors];    // NOLINT(*-avoid-c-arrays)
  __m256 offsets[kVectors] = {};  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      sums[r][j] =
          call.first ? _mm256_setzero_ps() : _mm256_loadu_ps(to + r * kPanelColumns + j * kLanes);
    }
  }
  if constexpr (Shifted) {
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kVectors; ++j) {
      const __m128i eight = _mm_loadu_si64(call.offsets + column + j * kLanes);
      offsets[j] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
    }
  }
  const auto* panel =
      reinterpret_cast<const std::byte*>(call.panel) + column / kLanes * vector_bytes(stored);
  const std::byte* x = call.rows;
  for (std::int64_t step = 0; step < call.k; step += kKStep, x += call.step_stride) {
    for (std::int64_t k = 0; k < kKStep; k += 2, panel += row_bytes(stored)) {
      ask_ahead<stored, kVectors>(panel);
      add_row<stored, false, Shifted>(x + k * 4, call.row_stride, panel, offsets, sums);
      add_row<stored, true, Shifted>(x + k * 4 + 4, call.row_stride, panel, offsets, sums);
    }
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      _mm256_storeu_ps(to + r * kPanelColumns + j * kLanes, sums[r][j]);
  }
}

// One group, by `Rows` rows or fewer.
template <Storage stored, bool Shifted, int Rows>
void multiply_group(const StoredTileCall& call) {
  if constexpr (Rows > 1) {
    if (call.row_count < Rows) return multiply_group<stored, Shifted, Rows - 1>(call);
  }
  for (std::int64_t column = 0; column < kPanelColumns; column += vectors(Rows) * kLanes)
    multiply_columns<stored, Shifted, Rows>(call, column);
}

template <Storage stored>
void multiply(const StoredTileCall& call) {
  if constexpr (bits_of(stored) <= 8) {
    if (call.offsets != nullptr)
      return for_each_group<stored>(call, multiply_group<stored, true, kMostRows>);
  }
  for_each_group<stored>(call, multiply_group<stored, false, kMostRows>);
}

}  // namespace

FewRows few_rows_in_avx2(Storage storage) {
  if (!base::may_use(base::InstructionSet::avx2)) return {};
  switch (storage) {
    case Storage::bf16:
      return {.max_rows = kMostRows, .multiply = multiply<Storage::bf16>};
    case Storage::f16:
      return {.max_rows = kMostRows, .multiply = multiply<Storage::f16>};
    case Storage::s8:
      return {.max_rows = kMostRows, .multiply = multiply<Storage::s8>};
    case Storage::s4:
      return {.max_rows = kMostRows, .multiply = multiply<Storage::s4>};
    case Storage::f32:
      break;
  }
  return {};
}

}  // namespace plait::gemm
