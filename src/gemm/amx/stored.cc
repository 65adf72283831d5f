// One step of the panel, 32 k, is expanded into the first cache while the tiles multiply the step
// before: never more than two steps, 8 KiB, are there at once. What the tiles read is what
// expand() would have written, so the bits are those of the expanded panel.
#include "gemm/amx/stored.h"

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstdint>

#include "gemm/amx/tiles.h"
#include "gemm/few_rows.h"

namespace plait::gemm::amx {
namespace {

constexpr std::int64_t kStepBytes = kKStep * kPanelColumns * 2;  // of bf16
constexpr int kPairs = kKStep / 2;
constexpr std::int64_t kLanes = 16;

// The stored panel comes from memory: see x86/stored_rows.h, whose loops are faster and ask further
// ahead.
constexpr std::int64_t kFarAhead = 16384;
constexpr std::int64_t kAhead = 4096;

// The offsets of the 64 columns; zeros where the weight has none.
struct Offsets {
  __m512i of[8];  // NOLINT(*-avoid-c-arrays): s8, twice each, 8 columns; s4: 16 columns, f32
  bool any;
};

// 16 bytes are 8 columns' pairs, in the order in which bf16 lie: nothing moves.
[[PLAIT_AMX, gnu::always_inline]] inline __m512 wide_s8(const std::int8_t* from, int j,
                                                        const Offsets& offsets) {
  const auto* bytes = reinterpret_cast<const __m128i*>(from + j * kLanes);
  __m512i values = _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes));
  if (offsets.any) values = _mm512_add_epi32(values, offsets.of[j]);
  return _mm512_cvtepi32_ps(values);
}

struct S8 {
  static constexpr std::int64_t kRowBytes = kPanelColumns * 2;

  [[PLAIT_AMX, gnu::always_inline]] explicit S8(const std::int8_t* given) {
    offsets_.any = given != nullptr;
    for (std::int64_t j = 0; j < 8 && offsets_.any; ++j) {
      const __m128i eight = _mm_loadu_si64(given + 8 * j);
      offsets_.of[j] = _mm512_cvtepi8_epi32(_mm_unpacklo_epi8(eight, eight));
    }
  }

  [[PLAIT_AMX, gnu::always_inline]] void expand(const std::int8_t* from, std::byte* to) const {
    for (int j = 0; j < 4; ++j) {
      const __m512 low = wide_s8(from, 2 * j, offsets_);
      const __m512 high = wide_s8(from, 2 * j + 1, offsets_);
      const auto pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      _mm512_store_si512(to + std::int64_t{j} * 64, pairs);
    }
  }

 private:
  Offsets offsets_;
};

struct S4 {
  static constexpr std::int64_t kRowBytes = kPanelColumns;

  [[PLAIT_AMX, gnu::always_inline]] explicit S4(const std::int8_t* given) {
    alignas(64) std::array<std::uint16_t, 32> pairs;  // NOLINT(*-member-init): written next
    for (int i = 0; i < 32; ++i) {
      const auto value = static_cast<float>(((i & 15) ^ 8) - 8);
      pairs[static_cast<std::size_t>(i)] =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    }
    halves_ = _mm512_load_si512(pairs.data());
    floats_ = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    offsets_.any = given != nullptr;
    for (std::int64_t j = 0; j < 4 && offsets_.any; ++j) {
      const auto* sixteen = reinterpret_cast<const __m128i*>(given + kLanes * j);
      offsets_.of[j] =
          _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(sixteen))));
    }
  }

  // Without offsets a table gives two bf16 at once: its index is the lowest five bits of a word,
  // and both halves of the table are the same.
  [[PLAIT_AMX, gnu::always_inline]] void expand(const std::int8_t* from, std::byte* to) const {
    for (std::int64_t j = 0; j < 4; ++j) {
      const auto* bytes = reinterpret_cast<const __m128i*>(from + j * kLanes);
      const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes));
      __m512i pairs;
      if (offsets_.any) {
        const auto shift = _mm512_castsi512_ps(offsets_.of[j]);
        const __m512 even = _mm512_add_ps(_mm512_permutexvar_ps(both, floats_), shift);
        const __m512 odd =
            _mm512_add_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), floats_), shift);
        // Whole numbers up to 256 have no digits in the lower half of their f32.
        pairs = _mm512_or_si512(_mm512_castps_si512(odd),
                                _mm512_srli_epi32(_mm512_castps_si512(even), 16));
      } else {
        const __m512i words = _mm512_or_si512(both, _mm512_slli_epi32(both, 12));
        pairs = _mm512_permutexvar_epi16(words, halves_);
      }
      _mm512_store_si512(to + j * 64, pairs);
    }
  }

 private:
  __m512i halves_;
  __m512 floats_;
  Offsets offsets_;
};

template <class Format>
[[PLAIT_AMX, gnu::always_inline]] inline void expand_step(const Format& format,
                                                          const std::int8_t* from, std::byte* to) {
  for (int pair = 0; pair < kPairs; ++pair, from += Format::kRowBytes, to += kPanelRow) {
    for (std::int64_t line = 0; line < Format::kRowBytes; line += 64) {
      _mm_prefetch(from + kFarAhead + line, _MM_HINT_T1);
      _mm_prefetch(from + kAhead + line, _MM_HINT_T0);
    }
    format.expand(from, to);
  }
}

template <class Format>
[[PLAIT_AMX]] void multiply(const StoredTileCall& call) {
  const Format format(call.offsets);
  alignas(64) std::array<std::byte, 2 * kStepBytes> steps;  // NOLINT(*-member-init): see below
  const SumTiles sums = tiles_of_group(call.sums);
  load_sums(sums, call.first);
  const std::int8_t* panel = call.panel;
  const std::byte* rows = call.rows;
  expand_step(format, panel, steps.data());
  for (std::int64_t step = 1; step < call.k / kKStep; ++step, rows += kTileBytes) {
    panel += kPairs * Format::kRowBytes;
    expand_step(format, panel, steps.data() + step % 2 * kStepBytes);
    multiply_step(rows, steps.data() + (step + 1) % 2 * kStepBytes);
  }
  multiply_step(rows, steps.data() + (call.k / kKStep + 1) % 2 * kStepBytes);
  store_sums(sums);
}

}  // namespace

void multiply_stored_s8(const StoredTileCall& call) {
  for_each_group<Storage::s8>(call, multiply<S8>);
}
void multiply_stored_s4(const StoredTileCall& call) {
  for_each_group<Storage::s4>(call, multiply<S4>);
}

}  // namespace plait::gemm::amx
