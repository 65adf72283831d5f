// Values become bf16 by looking them up, in tables of bytes for s8 and of words for s4. Few enough
// instructions that a row alone waits for memory (s8) or nearly does (s4), and none of them is done
// again for another row.
//
// Zen 4 does multiplications on two of its four pipes, and there too absolute values, tests into
// masks and vpmultishiftqb; hence the detours around these below.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/instruction_set.h"
#include "gemm/few_rows.h"
#include "gemm/x86/stored_rows.h"

#define PLAIT_AVX512 gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi")

namespace plait::gemm {
namespace {

using Words = __m512i[kVectors];  // NOLINT(*-avoid-c-arrays)

// Whole numbers up to 256 have no digits in the lower half of their f32: the upper is the bf16.
constexpr std::uint16_t bf16_bits(int value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

// The bytes of magnitudes from 1 to 128, which has the place of 0.
struct Magnitudes {
  alignas(64) std::array<std::uint8_t, 128> low;
  alignas(64) std::array<std::uint8_t, 128> high;
};

constexpr Magnitudes kMagnitudes = [] {
  Magnitudes tables = {};
  for (std::size_t i = 0; i < 128; ++i) {
    const std::uint16_t bits = bf16_bits(i == 0 ? 128 : static_cast<int>(i));
    tables.low[i] = static_cast<std::uint8_t>(bits);
    tables.high[i] = static_cast<std::uint8_t>(bits >> 8);
  }
  return tables;
}();

// Indexed by the lowest `bits` of a word, 4 or 5, of which the highest is the sign.
constexpr std::array<std::uint16_t, 32> signed_numbers(int bits) {
  std::array<std::uint16_t, 32> table = {};
  const int sign = 1 << (bits - 1);
  for (int i = 0; i < 32; ++i) {
    const int low = i & (2 * sign - 1);
    table[static_cast<std::size_t>(i)] = bf16_bits((low ^ sign) - sign);
  }
  return table;
}

alignas(64) constexpr std::array<std::uint16_t, 32> kFourBits = signed_numbers(4);
alignas(64) constexpr std::array<std::uint16_t, 32> kFiveBits = signed_numbers(5);

// A format makes pairs of bf16 of a stored row of pairs, the columns in an order of its own.
// in_order() gives vectors of columns in that order their places, and from_order() is its inverse.

class S8 {
 public:
  static constexpr Storage kStored = Storage::s8;

  [[PLAIT_AVX512, gnu::always_inline]] explicit S8(const std::int8_t* /*offsets*/) {
    for (std::int64_t i = 0; i < 2; ++i) {
      low_[i] = _mm512_load_si512(kMagnitudes.low.data() + i * 64);
      high_[i] = _mm512_load_si512(kMagnitudes.high.data() + i * 64);
    }
  }

  [[PLAIT_AVX512, gnu::always_inline]] void pairs(const std::int8_t* row, Words& to) const {
    const __m512i sign = _mm512_set1_epi8(-128);
    for (std::int64_t half = 0; half < 2; ++half) {
      const __m512i values = _mm512_loadu_si512(row + half * 64);
      const __m512i negated = _mm512_sub_epi8(_mm512_setzero_si512(), values);
      const __m512i magnitudes = _mm512_min_epu8(values, negated);
      // Tables are indexed with seven bits, so that 0 finds 128 and has to be masked.
      const __mmask64 some = _mm512_test_epi8_mask(values, values);
      const __m512i low = _mm512_permutex2var_epi8(low_[0], magnitudes, low_[1]);
      const __m512i high = _mm512_maskz_permutex2var_epi8(some, high_[0], magnitudes, high_[1]);
      const __m512i with_sign = _mm512_ternarylogic_epi32(high, values, sign, kFirstOrBoth);
      to[2 * half] = _mm512_unpacklo_epi8(low, with_sign);
      to[2 * half + 1] = _mm512_unpackhi_epi8(low, with_sign);
    }
  }

  // A vector holds 4 of each 8 columns, and the next vector the other 4.
  [[PLAIT_AVX512, gnu::always_inline]] static void in_order(Floats& v) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    mix(v, low, _mm512_add_epi32(low, _mm512_set1_epi32(8)));
  }
  [[PLAIT_AVX512, gnu::always_inline]] static void from_order(Floats& v) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    mix(v, low, _mm512_add_epi32(low, _mm512_set1_epi32(4)));
  }

 private:
  static constexpr int kFirstOrBoth = 0xf8;  // a | (b & c)

  [[PLAIT_AVX512, gnu::always_inline]] static void mix(Floats& v, __m512i low, __m512i high) {
    for (int j = 0; j < kVectors; j += 2) {
      const __m512 first = v[j];
      v[j] = _mm512_permutex2var_ps(first, low, v[j + 1]);
      v[j + 1] = _mm512_permutex2var_ps(first, high, v[j + 1]);
    }
  }

  __m512i low_[2];   // NOLINT(*-avoid-c-arrays)
  __m512i high_[2];  // NOLINT(*-avoid-c-arrays)
};

// Values and offsets have nine bits together, too many for a table.
class ShiftedS8 {
 public:
  static constexpr Storage kStored = Storage::s8;

  [[PLAIT_AVX512, gnu::always_inline]] explicit ShiftedS8(const std::int8_t* offsets) {
    for (std::int64_t j = 0; j < 2 * kVectors; ++j) {
      const __m128i eight = _mm_loadu_si64(offsets + 8 * j);
      offsets_[j] = _mm512_cvtepi8_epi32(_mm_unpacklo_epi8(eight, eight));
    }
  }

  [[PLAIT_AVX512, gnu::always_inline]] void pairs(const std::int8_t* row, Words& to) const {
    for (std::int64_t j = 0; j < kVectors; ++j) {
      const __m512bh both = _mm512_cvtne2ps_pbh(numbers(row, 2 * j + 1), numbers(row, 2 * j));
      to[j] = reinterpret_cast<__m512i>(both);
    }
  }

  static void in_order(Floats& /*v*/) {}
  static void from_order(Floats& /*v*/) {}

 private:
  // The pairs of 8 columns.
  [[PLAIT_AVX512, gnu::always_inline]] __m512 numbers(const std::int8_t* row,
                                                      std::int64_t j) const {
    const auto* from = reinterpret_cast<const __m128i*>(row + j * kLanes);
    const __m512i values = _mm512_cvtepi8_epi32(_mm_loadu_si128(from));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(values, offsets_[j]));
  }

  __m512i offsets_[2 * kVectors];  // NOLINT(*-avoid-c-arrays): each for even and for odd
};

template <bool Shifted>
class S4 {
 public:
  static constexpr Storage kStored = Storage::s4;

  [[PLAIT_AVX512, gnu::always_inline]] explicit S4(const std::int8_t* offsets) {
    table_ = _mm512_load_si512((Shifted ? kFiveBits : kFourBits).data());
    if constexpr (Shifted) {
      Floats wide;
      for (std::int64_t j = 0; j < kVectors; ++j) {
        const auto* from = reinterpret_cast<const __m128i*>(offsets + j * kLanes);
        wide[j] = _mm512_castsi512_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
      }
      from_order(wide);
      for (int j = 0; j < kVectors; ++j) {
        const __m512i words = _mm512_castps_si512(wide[j]);
        const __m512i doubled =
            _mm512_mask_blend_epi16(0xaaaaaaaa, words, _mm512_slli_epi32(words, 16));
        offsets_[j] = _mm512_sub_epi16(doubled, _mm512_set1_epi16(8));
      }
    }
  }

  // Words whose lowest bits are the values, two to a column: the even columns' by shifts, the odd
  // ones' by picking eight bits from each of four places of eight bytes. Half and half is faster
  // than either alone.
  [[PLAIT_AVX512, gnu::always_inline]] void pairs(const std::int8_t* row, Words& to) const {
    const __m512i both = _mm512_loadu_si512(row);
    const __m512i odd = _mm512_srli_epi16(both, 4);
    to[0] = number(_mm512_unpacklo_epi16(both, odd), 0);
    to[1] = number(_mm512_unpackhi_epi16(both, odd), 1);
    to[2] = number(_mm512_multishift_epi64_epi8(places(8), both), 2);
    to[3] = number(_mm512_multishift_epi64_epi8(places(40), both), 3);
  }

  // In a lane, of 16 columns: 0 2 4 6, 8 10 12 14, 1 3 9 11 and 5 7 13 15.
  [[PLAIT_AVX512, gnu::always_inline]] static void in_order(Floats& v) {
    const __m512 low = v[0];
    const __m512 high = v[1];
    const __m512 low_odd = unpack_low(v[2], v[3]);
    const __m512 high_odd = unpack_high(v[2], v[3]);
    v[0] = _mm512_unpacklo_ps(low, low_odd);
    v[1] = _mm512_unpackhi_ps(low, low_odd);
    v[2] = _mm512_unpacklo_ps(high, high_odd);
    v[3] = _mm512_unpackhi_ps(high, high_odd);
    turn_lanes(v);
  }
  [[PLAIT_AVX512, gnu::always_inline]] static void from_order(Floats& v) {
    turn_lanes(v);
    const __m512 low_odd = _mm512_shuffle_ps(v[0], v[1], 0xdd);
    const __m512 high_odd = _mm512_shuffle_ps(v[2], v[3], 0xdd);
    v[0] = _mm512_shuffle_ps(v[0], v[1], 0x88);
    v[1] = _mm512_shuffle_ps(v[2], v[3], 0x88);
    v[2] = unpack_low(low_odd, high_odd);
    v[3] = unpack_high(low_odd, high_odd);
  }

 private:
  static constexpr int kDifferentInThird = 0x28;  // (a ^ b) & c

  // Places of a column and of the one after the next, for even k and odd.
  [[PLAIT_AVX512, gnu::always_inline]] static __m512i places(long long column) {
    const long long pair = column | (column + 4) << 16;
    return _mm512_set1_epi64(pair | (pair + 0x00100010) << 32);
  }

  [[PLAIT_AVX512, gnu::always_inline]] __m512i number(__m512i words, int j) const {
    if constexpr (Shifted) {
      // The lowest four bits are all that a value has, once 8 is added to it.
      const __m512i raised = _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(8),
                                                       _mm512_set1_epi16(15), kDifferentInThird);
      words = _mm512_add_epi16(raised, offsets_[j]);
    }
    return _mm512_permutexvar_epi16(words, table_);
  }

  // Unpacks pairs of words of 32 bits.
  [[PLAIT_AVX512, gnu::always_inline]] static __m512 unpack_low(__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  [[PLAIT_AVX512, gnu::always_inline]] static __m512 unpack_high(__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }

  __m512i table_;
  Words offsets_;  // 8 less
};

[[PLAIT_AVX512, gnu::always_inline]] inline __m512bh broadcast_pair(const std::byte* from) {
  int pair;  // NOLINT(*-init-variables): X may be aligned to bytes only
  std::memcpy(&pair, from, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <class Format>
[[PLAIT_AVX512, gnu::always_inline]] inline void load_columns(const float* from, Floats& v) {
  for (int j = 0; j < kVectors; ++j) v[j] = _mm512_loadu_ps(from + j * kLanes);
  Format::from_order(v);
}

template <class Format>
[[PLAIT_AVX512, gnu::always_inline]] inline void load_scales(const StoredTileCall& call,
                                                             LeafScales& scales) {
  if (call.scales == nullptr) return;
  Floats some;
  load_columns<Format>(call.scales, some);
  for (int j = 0; j < kVectors; ++j) _mm512_store_ps(scales.of + j * kLanes, some[j]);
}

// All groups of Rows rows.
template <class Format, bool InLeaves, int Rows>
[[PLAIT_AVX512]] void multiply_rows(const StoredTileCall& call) {
  const std::byte* x = call.rows;
  const std::int8_t* panel = call.panel;
  const std::int8_t* offsets = call.offsets;
  float* to = call.sums;
  LeafScales scales;
  if constexpr (InLeaves) load_scales<Format>(call, scales);
  for (int group = 0; group < call.groups; ++group) {
    const Format format(offsets);
    if (offsets != nullptr) offsets += call.offset_step;
    Floats sums[Rows];  // NOLINT(*-avoid-c-arrays)
    for (std::int64_t r = 0; r < Rows; ++r) {
      for (auto& sum : sums[r]) sum = _mm512_setzero_ps();
      if (!InLeaves && !call.first) load_columns<Format>(to + r * kPanelColumns, sums[r]);
    }
    for (std::int64_t k = 0; k < call.k; k += kKStep, x += call.step_stride) {
      for (std::int64_t pair = 0; pair < kPairs; ++pair, panel += row_bytes(Format::kStored)) {
        ask_ahead(panel, Format::kStored);
        Words weights;
        format.pairs(panel, weights);
        for (std::int64_t r = 0; r < Rows; ++r) {
          const __m512bh same = broadcast_pair(x + r * call.row_stride + pair * 4);
          for (int j = 0; j < kVectors; ++j)
            sums[r][j] = _mm512_dpbf16_ps(sums[r][j], same, reinterpret_cast<__m512bh>(weights[j]));
        }
      }
    }
    bool in_order = true;
    if constexpr (InLeaves) {
      to = make_leaves(call, call.leaf + group, scales, sums);
      in_order = call.leaf + group + 1 == call.leaves;
    }
    if (in_order) {
      for (auto& row : sums) Format::in_order(row);
    }
    for (std::int64_t r = 0; r < Rows; ++r, to += kPanelColumns) {
      for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(to + j * kLanes, sums[r][j]);
    }
  }
}

template <class Format, bool InLeaves>
struct InPairs {
  template <int Rows>
  static void rows(const StoredTileCall& call) {
    multiply_rows<Format, InLeaves, Rows>(call);
  }
};

template <class Format, bool InLeaves>
void multiply_all(const StoredTileCall& call) {
  if (call.row_count <= kRowsAtOnce) return up_to_six<InPairs<Format, InLeaves>>(call);
  for_each_group<Format::kStored>(call, two_halves<InPairs<Format, InLeaves>>);
}

template <class Format>
void multiply(const StoredTileCall& call) {
  (call.leaves > 0 ? multiply_all<Format, true> : multiply_all<Format, false>)(call);
}

void multiply_s8(const StoredTileCall& call) {
  (call.offsets == nullptr ? multiply<S8> : multiply<ShiftedS8>)(call);
}

void multiply_s4(const StoredTileCall& call) {
  (call.offsets == nullptr ? multiply<S4<false>> : multiply<S4<true>>)(call);
}

// One generation of processors multiplies bf16 and can't look bytes up.
bool looks_bytes_up() {
  return base::may_use(base::InstructionSet::avx512_bf16) && __builtin_cpu_supports("avx512vbmi");
}

}  // namespace

FewRows few_rows_in_pairs(Storage storage) {
  if (!looks_bytes_up()) return {};
  constexpr int kMost = 2 * kRowsAtOnce;
  if (storage == Storage::s8)
    return {.max_rows = kMost, .multiply = multiply_s8, .adds_leaves = true};
  if (storage == Storage::s4)
    return {.max_rows = kMost, .multiply = multiply_s4, .adds_leaves = true};
  return {};
}

}  // namespace plait::gemm
