// Compiled with -mavx512f -mavx512bw.
#include <immintrin.h>

#include "base/instruction_set.h"
#include "gemm/few_rows.h"
#include "gemm/vector/rows.h"
#include "gemm/vector/turned.h"
#include "gemm/vector/x86/sets.h"
#include "gemm/vector/x86/turn512.h"
#include "gemm/x86/rounded.h"

namespace plait::gemm::vector {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int kWordK = 1;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 6;
  static constexpr int vectors(int /*rows*/) { return 4; }

  static Vector broadcast(float value) { return _mm512_set1_ps(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static void store(void* to, Dtype dtype, const Vector* sums) { store_row(to, dtype, sums); }

  // Two groups of outputs take turns if sums would wait for one another.
  static constexpr int groups(int rows, int parts) { return rows * 2 <= parts ? 2 : 1; }
  static constexpr int vectors_of_step(int rows) { return rows <= 4 ? 4 : 2; }
  static constexpr int outputs(int vectors) { return kLanes / vectors; }
  [[gnu::always_inline]] static void turn(const FourthRows& rows, Vector (&to)[kLanes]) {
    turn_square(rows, to);
  }
  // Eight words, each twice.
  [[gnu::always_inline]] static Vector twice(const std::byte* words) {
    constexpr Lanes<Avx512>::Words kOrder = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
    const __m256 some = _mm256_loadu_ps(reinterpret_cast<const float*>(words));
    return _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(kOrder),
                                       _mm512_castps256_ps512(some));
  }
  [[gnu::always_inline]] static Vector broadcast_two(const float* words) {
    double two;  // NOLINT(*-init-variables)
    std::memcpy(&two, words, sizeof(two));
    return _mm512_castpd_ps(_mm512_set1_pd(two));
  }
  [[gnu::always_inline]] static void interleave(Vector a, Vector b, Vector* to) {
    to[0] = _mm512_unpacklo_ps(a, b);
    to[1] = _mm512_unpackhi_ps(a, b);
  }
  // gcc 12 makes two halves of it by itself, on the stack.
  static Lanes<Avx512>::Words widen_halves(Lanes<Avx512>::Halves halves) {
    return reinterpret_cast<Lanes<Avx512>::Words>(
        _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(halves)));
  }
  // The even ones first.
  static Vector part_halves(Vector pairs) {
    constexpr Lanes<Avx512>::Words kOrder = {0x00020000, 0x00060004, 0x000a0008, 0x000e000c,
                                             0x00120010, 0x00160014, 0x001a0018, 0x001e001c,
                                             0x00030001, 0x00070005, 0x000b0009, 0x000f000d,
                                             0x00130011, 0x00170015, 0x001b0019, 0x001f001d};
    return reinterpret_cast<Vector>(_mm512_maskz_permutexvar_epi16(
        0xffffffff, reinterpret_cast<__m512i>(kOrder), reinterpret_cast<__m512i>(pairs)));
  }
  static Vector widen_f16(Lanes<Avx512>::Halves halves) {
    // All of them: gcc 12 takes the intrinsic without a mask for a mistake.
    return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(halves));
  }
};

// Multiplies pairs of bf16 with the bits of their own instruction: the odd k first, denormals as 0.
struct Avx512Pairs : Avx512 {
  using Words = Lanes<Avx512>;
  static constexpr int kWordK = 2;
  static constexpr int kRowsOfSquares = 12;
  static constexpr int groups(int /*rows*/, int /*parts*/) { return 1; }

  template <int part>
  [[gnu::always_inline]] static Vector part_of(Vector word) {
    return part == 0 ? Words::even_bf16(word) : Words::odd_bf16(word);
  }

  static void widen(const std::byte* pairs, std::int64_t words, float* to) {
    for (std::int64_t i = 0; i < 2 * words; i += kLanes) {
      const auto wide = Words::wide(pairs + 2 * i) << 16;
      std::memcpy(to + i, &wide, sizeof(wide));
    }
  }

  // Denormals are 0 in what is added between the two, and in nothing else: no sum passes by. These
  // two are for sums in memory.
  static unsigned hold() {
    const unsigned before = _mm_getcsr();
    asm volatile("" ::: "memory");
    _mm_setcsr(kAmxFloats);
    asm volatile("" ::: "memory");
    return before;
  }
  static void let_go(unsigned before) {
    asm volatile("" ::: "memory");
    _mm_setcsr(before);
    asm volatile("" ::: "memory");
  }
  // These are for sums in registers.
  template <int Rows, int Vectors>
  [[gnu::always_inline]] static unsigned hold(Vector (&sum)[Rows][Vectors]) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(kAmxFloats);
    pin(sum);
    return before;
  }
  template <int Rows, int Vectors>
  [[gnu::always_inline]] static void let_go(Vector (&sum)[Rows][Vectors], unsigned before) {
    pin(sum);
    _mm_setcsr(before);
  }

 private:
  template <int Rows, int Vectors>
  [[gnu::always_inline]] static void pin(Vector (&sum)[Rows][Vectors]) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) asm volatile("" : "+v"(sum[r][v]));
    }
  }
};

}  // namespace

void multiply_avx512(const TileCall& call) { multiply<Avx512>(call); }
void multiply_avx512_pairs(const TileCall& call) { multiply<Avx512Pairs>(call); }
PlainRows plain_rows_avx512(Storage storage) {
  PlainRows rows = plain_rows<Avx512>(storage);
  if (base::spreads_words_slowly()) {  // only these are faster by turned rows than by packed pieces
    rows.min_turned = 13;
    rows.max_turned = 24;
  }
  return rows;
}

PlainRows plain_rows_avx512_pairs(Storage storage) {
  PlainRows rows = plain_rows_avx512_bf16(storage);
  if (rows.max_rows == 0) return rows;
  rows.max_narrow = 2;
  rows.max_turned = kMostTurnedRows;
  rows.multiply_wide = multiply_plain<Avx512Pairs, Bf16ToF32<Avx512Pairs>>;
  rows.multiply_turned = multiply_turned<Avx512Pairs, Bf16InPairs<Avx512Pairs>>;
  rows.lanes = Avx512Pairs::kLanes;
  rows.fills_halves = true;
  rows.multiply_squares = multiply_squares<Avx512Pairs, Bf16ToF32<Avx512Pairs>>;
  return rows;
}

namespace {

void multiply_in_chains(const PlainCall& call) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kAmxFloats);
  multiply_plain<Avx512, Bf16InChains<Avx512>>(call);
  _mm_setcsr(before);
}

}  // namespace

}  // namespace plait::gemm::vector

namespace plait::gemm {

PlainRows plain_rows_in_chains(Storage storage) {
  if (storage != Storage::bf16 || !base::may_use(base::InstructionSet::avx512)) return {};
  return {vector::kMostPlainRows, vector::multiply_in_chains};
}

}  // namespace plait::gemm
