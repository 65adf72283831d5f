// Two loops of AVX-512 that are not the template's: one row in AMX's order, and f32 by s4, whose
// columns are in an order that takes a shuffle less.
//
// Values become f32: s8 by sign-extending bytes, s4 by a table of the sixteen values that the
// instruction indexes with the lowest four bits.
#include <immintrin.h>

#include <algorithm>
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

// Columns of s4 come in the order above, those of s8 in order.
template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline void load_columns(const float* from, Floats& v) {
  for (int j = 0; j < kVectors; ++j) v[j] = _mm512_loadu_ps(from + j * kLanes);
  if constexpr (stored == Storage::s4) {
    turn_lanes(v);
    turn_in_lanes(v);
  }
}

template <Storage stored>
[[PLAIT_AVX512, gnu::always_inline]] inline void store_columns(Floats& v, float* to) {
  if constexpr (stored == Storage::s4) {
    turn_in_lanes(v);
    turn_lanes(v);
  }
  for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(to + j * kLanes, v[j]);
}

// Offsets of s4's columns.
[[PLAIT_AVX512, gnu::always_inline]] inline void load_offsets(const StoredTileCall& call,
                                                              Floats& offsets) {
  alignas(64) float wide[kPanelColumns];  // NOLINT(*-avoid-c-arrays)
  for (int j = 0; j < kPanelColumns; ++j) wide[j] = call.offsets[j];
  load_columns<Storage::s4>(wide, offsets);
}

// 16 columns' values at an even k and at the odd one after it.
struct Pair {
  __m512 even;
  __m512 odd;
};

// A pair of s4. `Inside`: 3 bytes behind the row of the panel may be read.
template <bool Inside>
[[PLAIT_AVX512, gnu::always_inline]] inline Pair pair_of(const std::int8_t* row, int j,
                                                         const __m512* offsets) {
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  // A load that begins later is a shift that costs nothing.
  const __m512i both =
      Inside ? _mm512_loadu_si512(row + j) : _mm512_srli_epi32(_mm512_loadu_si512(row), 8U * j);
  const Pair pair = {.even = _mm512_permutexvar_ps(both, table),
                     .odd = _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), table)};
  if (offsets == nullptr) return pair;
  return {.even = _mm512_add_ps(pair.even, offsets[j]), .odd = _mm512_add_ps(pair.odd, offsets[j])};
}

[[PLAIT_AVX512, gnu::always_inline]] inline __m512 broadcast(const std::byte* from) {
  float value;  // NOLINT(*-init-variables): X may be aligned to bytes only
  std::memcpy(&value, from, sizeof(value));
  return _mm512_set1_ps(value);
}

// kKStep k of Rows rows by s4.
template <int Rows, bool Inside>
[[PLAIT_AVX512, gnu::always_inline]] inline void step_in_sequence(const StoredTileCall& call,
                                                                  std::int64_t step,
                                                                  const __m512* offsets,
                                                                  Floats (&sums)[Rows]) {
  const std::byte* x = call.rows + step * call.step_stride;
  const std::int8_t* panel = call.panel + step * kPairs * row_bytes(Storage::s4);
  for (std::int64_t k = 0; k < kKStep; k += 2, panel += row_bytes(Storage::s4)) {
    ask_ahead(panel, Storage::s4);
    for (int j = 0; j < kVectors; ++j) {
      const bool last = !Inside && k + 2 == kKStep;
      const Pair pair = last ? pair_of<false>(panel, j, offsets) : pair_of<true>(panel, j, offsets);
      for (int r = 0; r < Rows; ++r) {
        const std::byte* at = x + r * call.row_stride + k * 4;
        sums[r][j] = _mm512_fmadd_ps(broadcast(at), pair.even, sums[r][j]);
        sums[r][j] = _mm512_fmadd_ps(broadcast(at + 4), pair.odd, sums[r][j]);
      }
    }
  }
}

struct InSequence {
  template <int Rows>
  [[PLAIT_AVX512]] static void rows(const StoredTileCall& call) {
    Floats some;
    const __m512* offsets = call.offsets == nullptr ? nullptr : some;
    if (offsets != nullptr) load_offsets(call, some);
    Floats sums[Rows];  // NOLINT(*-avoid-c-arrays)
    for (std::int64_t r = 0; r < Rows; ++r) {
      for (auto& sum : sums[r]) sum = _mm512_setzero_ps();
      if (!call.first) load_columns<Storage::s4>(call.sums + r * kPanelColumns, sums[r]);
    }
    const std::int64_t steps = call.k / kKStep - 1;
    for (std::int64_t step = 0; step < steps; ++step)
      step_in_sequence<Rows, true>(call, step, offsets, sums);
    step_in_sequence<Rows, false>(call, steps, offsets, sums);
    for (std::int64_t r = 0; r < Rows; ++r)
      store_columns<Storage::s4>(sums[r], call.sums + r * kPanelColumns);
  }
};

void s4_in_sequence(const StoredTileCall& call) {
  for_each_group<Storage::s4>(call, two_halves<InSequence>);
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
                                                            const __m512* offsets, Floats& sums) {
  Floats even;
  Floats odd;
  for (int j = 0; j < kVectors; ++j) even[j] = odd[j] = _mm512_setzero_ps();
  for (int k = 0; k < kKStep; k += 2, panel += row_bytes(Storage::s4)) {
    ask_ahead(panel, Storage::s4);
    for (int j = 0; j < kVectors; ++j) {
      const bool last = !Inside && k + 2 == kKStep;
      const Pair pair = last ? pair_of<false>(panel, j, offsets) : pair_of<true>(panel, j, offsets);
      even[j] = _mm512_fmadd_ps(pair.even, _mm512_set1_ps(step.x[k]), even[j]);
      odd[j] = _mm512_fmadd_ps(pair.odd, _mm512_set1_ps(step.x[k + 1]), odd[j]);
    }
  }
  for (int j = 0; j < kVectors; ++j)
    sums[j] = _mm512_add_ps(sums[j], _mm512_add_ps(even[j], odd[j]));
}

template <Storage stored>
[[PLAIT_AVX512, gnu::noinline]] void row_in_chains(const StoredTileCall& call) {
  __m512 some[2 * kVectors];  // NOLINT(*-avoid-c-arrays): of s8, each for even and for odd
  const __m512* offsets = call.offsets == nullptr ? nullptr : some;
  if (offsets != nullptr && stored == Storage::s4) {
    Floats four;
    load_offsets(call, four);
    std::copy_n(four, kVectors, some);
  }
  if (offsets != nullptr && stored == Storage::s8) {
    for (std::int64_t j = 0; j < 2 * kVectors; ++j) {
      const __m128i eight = _mm_loadu_si64(call.offsets + 8 * j);
      some[j] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_unpacklo_epi8(eight, eight)));
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
      step_of_s8(step, panel, offsets, sums);
    } else if (k + kKStep < call.k) {
      step_of_s4<true>(step, panel, offsets, sums);
    } else {
      step_of_s4<false>(step, panel, offsets, sums);
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

// Here and not beside the templates, whose files are compiled for instructions that a processor may
// lack.
FewRows few_rows_in_sequence(Storage storage) {
  using base::InstructionSet;
  if (base::may_use(InstructionSet::avx512)) {
    if (storage != Storage::s4) return few_rows_in_avx512(storage);
    return {.max_rows = 2 * kRowsAtOnce, .multiply = s4_in_sequence};
  }
  return base::may_use(InstructionSet::avx2) ? few_rows_in_avx2(storage) : FewRows{};
}

FewRows few_rows_in_chains(Storage storage) {
  if (!base::may_use(base::InstructionSet::avx512)) return {};
  if (storage == Storage::s8) return {.max_rows = 1, .multiply = in_chains<Storage::s8>};
  if (storage == Storage::s4) return {.max_rows = 1, .multiply = in_chains<Storage::s4>};
  return {};
}

}  // namespace plait::gemm
