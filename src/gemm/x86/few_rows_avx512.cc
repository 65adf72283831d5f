// Values are turned into f32 by what costs the fewest instructions: bf16 by shifting and masking,
// s8 by sign-extending bytes, s4 by a table of the sixteen values that the instruction indexes with
// the lowest four bits.
#include <immintrin.h>

#include <cstring>

#include "base/instruction_set.h"
#include "gemm/few_rows.h"
#include "gemm/x86/stored_rows.h"

#define PLAIT_AVX512 gnu::target("avx512f,avx512bw,avx512vl,avx512dq")

namespace plait::gemm {
namespace {

// A row of s4 pairs is read as dwords: vector j has bytes j of the dwords, which belong to columns
// j, 4 + j, 8 + j, ... These turn four vectors of such columns into columns in order, and back: in
// each 128 bits columns and vectors change places, and then blocks of 128 bits do.
[[PLAIT_AVX512, gnu::always_inline]] inline void turn_in_lanes(Floats& v) {
  const __m512 ab = _mm512_unpacklo_ps(v[0], v[1]);
  const __m512 cd = _mm512_unpacklo_ps(v[2], v[3]);
  const __m512 ab_high = _mm512_unpackhi_ps(v[0], v[1]);
  const __m512 cd_high = _mm512_unpackhi_ps(v[2], v[3]);
  v[0] = _mm512_shuffle_ps(ab, cd, 0x44);
  v[1] = _mm512_shuffle_ps(ab, cd, 0xee);
  v[2] = _mm512_shuffle_ps(ab_high, cd_high, 0x44);
  v[3] = _mm512_shuffle_ps(ab_high, cd_high, 0xee);
}

// Columns of s4 come in the order above, all others in order.
template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline void load_columns(const float* from, Floats& v) {
  for (int j = 0; j < kVectors; ++j) v[j] = _mm512_loadu_ps(from + j * kLanes);
  if constexpr (stored == Storage::s4) {
    turn_lanes(v);
    turn_in_lanes(v);
  }
}

template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline void put_in_order(Floats& v) {
  if constexpr (stored == Storage::s4) {
    turn_in_lanes(v);
    turn_lanes(v);
  }
}

template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline void store_columns(Floats& v, float* to) {
  put_in_order<stored>(v);
  for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(to + j * kLanes, v[j]);
}

template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline void load_scales(const StoredTileCall& call,
                                                             LeafScales& scales) {
  if (call.scales == nullptr) return;
  Floats some;
  load_columns<stored>(call.scales, some);
  for (int j = 0; j < kVectors; ++j) _mm512_store_ps(scales.of + j * kLanes, some[j]);
}

// The values that every multiplication of a call needs, whatever the row of the panel.
template <Storage stored>
struct Values {
  __m512 table;
  Floats offsets;
  bool shifted;
};

template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline Values<stored> values_of(const StoredTileCall& call) {
  Values<stored> values;
  values.table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  values.shifted = call.offsets != nullptr;
  if (!values.shifted) return values;
  alignas(64) float offsets[kPanelColumns];  // NOLINT(*-avoid-c-arrays)
  for (int j = 0; j < kPanelColumns; ++j) offsets[j] = call.offsets[j];
  load_columns<stored>(offsets, values.offsets);
  return values;
}

// 16 columns' values at an even k and at the odd one after it.
struct Pair {
  __m512 even;
  __m512 odd;
};

// `Inside`: 3 bytes behind the row of the panel may be read.
template <Storage stored, bool Inside>
[[PLAIT_AVX512, gnu::always_inline]] inline Pair pair_of(const std::int8_t* row, int j,
                                                         const Values<stored>& values) {
  Pair pair;
  if constexpr (stored == Storage::bf16) {
    const __m512i both = _mm512_loadu_si512(row + 4 * kLanes * j);
    pair.even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    pair.odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-0x10000)));
  } else if constexpr (stored == Storage::f16) {
    const __m512i both = _mm512_loadu_si512(row + 4 * kLanes * j);
    pair.even = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
    pair.odd = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  } else if constexpr (stored == Storage::s8) {
    const auto* from = reinterpret_cast<const __m256i*>(row + 2 * kLanes * j);
    const __m512i both = _mm512_cvtepi16_epi32(_mm256_loadu_si256(from));
    pair.even = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(both, 24), 24));
    pair.odd = _mm512_cvtepi32_ps(_mm512_srai_epi32(both, 8));
  } else {
    // A load that begins later is a shift that costs nothing.
    const __m512i both =
        Inside ? _mm512_loadu_si512(row + j) : _mm512_srli_epi32(_mm512_loadu_si512(row), 8U * j);
    pair.even = _mm512_permutexvar_ps(both, values.table);
    pair.odd = _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), values.table);
  }
  if (!values.shifted) return pair;
  return {.even = _mm512_add_ps(pair.even, values.offsets[j]),
          .odd = _mm512_add_ps(pair.odd, values.offsets[j])};
}

[[PLAIT_AVX512, gnu::always_inline]] inline __m512 broadcast(const std::byte* from) {
  float value;  // NOLINT(*-init-variables): X may be aligned to bytes only
  std::memcpy(&value, from, sizeof(value));
  return _mm512_set1_ps(value);
}

// kKStep k of Rows rows.
template <Storage stored, int Rows, bool Inside>
[[PLAIT_AVX512, gnu::always_inline]] inline void step_in_sequence(const StoredTileCall& call,
                                                                  std::int64_t step,
                                                                  const Values<stored>& values,
                                                                  Floats (&sums)[Rows]) {
  const std::byte* x = call.rows + step * call.step_stride;
  const std::int8_t* panel = call.panel + step * kPairs * row_bytes(stored);
  for (std::int64_t k = 0; k < kKStep; k += 2, panel += row_bytes(stored)) {
    ask_ahead(panel, stored);
    for (int j = 0; j < kVectors; ++j) {
      const bool last = !Inside && k + 2 == kKStep;
      const Pair pair =
          last ? pair_of<stored, false>(panel, j, values) : pair_of<stored, true>(panel, j, values);
      for (int r = 0; r < Rows; ++r) {
        const std::byte* at = x + r * call.row_stride + k * 4;
        sums[r][j] = _mm512_fmadd_ps(broadcast(at), pair.even, sums[r][j]);
        sums[r][j] = _mm512_fmadd_ps(broadcast(at + 4), pair.odd, sums[r][j]);
      }
    }
  }
}

template <Storage stored, bool InLeaves, int Rows>
[[PLAIT_AVX512, gnu::always_inline]] inline void group_in_sequence(const StoredTileCall& call,
                                                                   const LeafScales& scales) {
  const Values<stored> values = values_of<stored>(call);
  Floats sums[Rows];  // NOLINT(*-avoid-c-arrays)
  for (std::int64_t r = 0; r < Rows; ++r) {
    for (int j = 0; j < kVectors; ++j) sums[r][j] = _mm512_setzero_ps();
    if (!InLeaves && !call.first) load_columns<stored>(call.sums + r * kPanelColumns, sums[r]);
  }
  // Only rows of s4 are read beyond their end; the code of all others is there once.
  constexpr bool kReadsBeyond = stored == Storage::s4;
  const std::int64_t steps = call.k / kKStep - (kReadsBeyond ? 1 : 0);
  for (std::int64_t step = 0; step < steps; ++step)
    step_in_sequence<stored, Rows, true>(call, step, values, sums);
  if constexpr (kReadsBeyond) step_in_sequence<stored, Rows, false>(call, steps, values, sums);
  float* to = call.sums;
  bool in_order = true;
  if constexpr (InLeaves) {
    to = make_leaves(call, call.leaf, scales, sums);
    in_order = call.leaf + 1 == call.leaves;
  }
  if (in_order) {
    for (auto& row : sums) put_in_order<stored>(row);
  }
  for (std::int64_t r = 0; r < Rows; ++r, to += kPanelColumns) {
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(to + j * kLanes, sums[r][j]);
  }
}

// All groups of Rows rows.
template <Storage stored, bool InLeaves>
struct InSequence {
  template <int Rows>
  [[PLAIT_AVX512]] static void rows(const StoredTileCall& call) {
    LeafScales scales;
    if constexpr (InLeaves) load_scales<stored>(call, scales);
    StoredTileCall group = call;
    for (int g = 0; g < call.groups; ++g, advance<stored>(group))
      group_in_sequence<stored, InLeaves, Rows>(group, scales);
  }
};

template <Storage stored, bool InLeaves>
void all_in_sequence(const StoredTileCall& call) {
  if (call.row_count <= kRowsAtOnce) return up_to_six<InSequence<stored, InLeaves>>(call);
  for_each_group<stored>(call, two_halves<InSequence<stored, InLeaves>>);
}

template <Storage stored>
void in_sequence(const StoredTileCall& call) {
  (call.leaves > 0 ? all_in_sequence<stored, true> : all_in_sequence<stored, false>)(call);
}

// A row's kKStep bf16 as f32.
struct Step {
  alignas(64) float x[kKStep];  // NOLINT(*-avoid-c-arrays)
};

[[PLAIT_AVX512, gnu::always_inline]] inline void widen(const std::byte* from, Step& step) {
  for (std::int64_t half = 0; half < 2; ++half) {
    const auto* words = reinterpret_cast<const __m256i*>(from + half * 32);
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words));
    _mm512_store_ps(step.x + half * kLanes, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
  }
}

// Two rows of s8 by one: the chains lie beside each other as the values do, even and odd of 8
// columns in a vector, so that sign-extending bytes is all there is to do.
[[PLAIT_AVX512, gnu::always_inline]] inline void step_of_s8(const Step& step,
                                                            const std::int8_t* panel,
                                                            const __m512* offsets, Floats& sums) {
  constexpr int kChains = 2 * kVectors;
  __m512 chain[kChains];  // NOLINT(*-avoid-c-arrays)
  for (auto& one : chain) one = _mm512_setzero_ps();
  for (int k = 0; k < kKStep; k += 2, panel += row_bytes(Storage::s8)) {
    ask_ahead(panel, Storage::s8);
    double pair;  // NOLINT(*-init-variables)
    std::memcpy(&pair, step.x + k, sizeof(pair));
    const __m512 x = _mm512_castpd_ps(_mm512_set1_pd(pair));
    for (std::int64_t j = 0; j < kChains; ++j) {
      const auto* from = reinterpret_cast<const __m128i*>(panel + j * kLanes);
      __m512 value = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
      if (offsets != nullptr) value = _mm512_add_ps(value, offsets[j]);
      chain[j] = _mm512_fmadd_ps(value, x, chain[j]);
    }
  }
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (std::int64_t j = 0; j < kVectors; ++j) {
    const __m512 evens = _mm512_permutex2var_ps(chain[2 * j], even, chain[2 * j + 1]);
    const __m512 odds = _mm512_permutex2var_ps(chain[2 * j], odd, chain[2 * j + 1]);
    sums[j] = _mm512_add_ps(sums[j], _mm512_add_ps(evens, odds));
  }
}

template <bool Inside>
[[PLAIT_AVX512, gnu::always_inline]] inline void step_of_s4(const Step& step,
                                                            const std::int8_t* panel,
                                                            const Values<Storage::s4>& values,
                                                            Floats& sums) {
  Floats even;
  Floats odd;
  for (int j = 0; j < kVectors; ++j) even[j] = odd[j] = _mm512_setzero_ps();
  for (int k = 0; k < kKStep; k += 2, panel += row_bytes(Storage::s4)) {
    ask_ahead(panel, Storage::s4);
    for (int j = 0; j < kVectors; ++j) {
      const bool last = !Inside && k + 2 == kKStep;
      const Pair pair = last ? pair_of<Storage::s4, false>(panel, j, values)
                             : pair_of<Storage::s4, true>(panel, j, values);
      even[j] = _mm512_fmadd_ps(pair.even, _mm512_set1_ps(step.x[k]), even[j]);
      odd[j] = _mm512_fmadd_ps(pair.odd, _mm512_set1_ps(step.x[k + 1]), odd[j]);
    }
  }
  for (int j = 0; j < kVectors; ++j)
    sums[j] = _mm512_add_ps(sums[j], _mm512_add_ps(even[j], odd[j]));
}

template <Storage stored>
[[PLAIT_AVX512, gnu::noinline]] void row_in_chains(const StoredTileCall& call) {
  const Values<stored> values = values_of<stored>(call);
  __m512 doubled[2 * kVectors];  // NOLINT(*-avoid-c-arrays): each offset for even and for odd
  if (stored == Storage::s8 && values.shifted) {
    for (std::int64_t j = 0; j < 2 * kVectors; ++j) {
      const __m128i eight = _mm_loadu_si64(call.offsets + 8 * j);
      doubled[j] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_unpacklo_epi8(eight, eight)));
    }
  }
  Floats sums;
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  if (!call.first) load_columns<stored>(call.sums, sums);
  const std::byte* x = call.rows;
  const std::int8_t* panel = call.panel;
  Step step;
  for (std::int64_t k = 0; k < call.k; k += kKStep) {
    widen(x, step);
    if constexpr (stored == Storage::s8) {
      step_of_s8(step, panel, values.shifted ? doubled : nullptr, sums);
    } else if (k + kKStep < call.k) {
      step_of_s4<true>(step, panel, values, sums);
    } else {
      step_of_s4<false>(step, panel, values, sums);
    }
    x += call.step_stride;
    panel += kPairs * row_bytes(stored);
  }
  store_columns<stored>(sums, call.sums);
}

// For all groups at once: setting it takes as long as a group of 32 k. The row is a function of its
// own, which no compiler computes parts of outside.
template <Storage stored>
[[PLAIT_AVX512]] void in_chains(const StoredTileCall& call) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kAmxFloats);
  for_each_group<stored>(call, row_in_chains<stored>);
  _mm_setcsr(before);
}

}  // namespace

FewRows few_rows_in_sequence(Storage storage) {
  if (!base::may_use(base::InstructionSet::avx512)) return few_rows_in_avx2(storage);
  constexpr int kMost = 2 * kRowsAtOnce;
  switch (storage) {
    case Storage::bf16:
      return {.max_rows = kMost, .multiply = in_sequence<Storage::bf16>, .adds_leaves = true};
    case Storage::f16:
      return {.max_rows = kMost, .multiply = in_sequence<Storage::f16>, .adds_leaves = true};
    case Storage::s8:
      return {.max_rows = kMost, .multiply = in_sequence<Storage::s8>, .adds_leaves = true};
    case Storage::s4:
      return {.max_rows = kMost, .multiply = in_sequence<Storage::s4>, .adds_leaves = true};
    case Storage::f32:
      break;
  }
  return {};
}

FewRows few_rows_in_chains(Storage storage) {
  if (!base::may_use(base::InstructionSet::avx512)) return {};
  if (storage == Storage::s8) return {.max_rows = 1, .multiply = in_chains<Storage::s8>};
  if (storage == Storage::s4) return {.max_rows = 1, .multiply = in_chains<Storage::s4>};
  return {};
}

}  // namespace plait::gemm
