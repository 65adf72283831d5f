// Code that the kernels on tiles share: a group of up to 16 rows of X by the 64 columns of a panel.
//
// The processor's tiles are named by numbers in the instructions, so this says which is which: the
// sums are in 0 to 3, a group's rows in 4, what of the panel is multiplied by them in 6 and 7.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "gemm/kernel.h"

#define PLAIT_AMX gnu::target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace plait::gemm::amx {

inline constexpr std::int64_t kTileBytes = 1024;     // 16 rows of 64 bytes
inline constexpr int kPanelRow = kPanelColumns * 4;  // bytes of a row of pairs
inline constexpr int kSumsRow = kPanelColumns * 4;

// The places of the four tiles of sums in memory.
struct SumTiles {
  float* of[4];  // NOLINT(*-avoid-c-arrays): each is read at an index that is known
};

[[PLAIT_AMX, gnu::always_inline]] inline void load_sums(const SumTiles& sums, bool first) {
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums.of[0], kSumsRow);
    _tile_loadd(1, sums.of[1], kSumsRow);
    _tile_loadd(2, sums.of[2], kSumsRow);
    _tile_loadd(3, sums.of[3], kSumsRow);
  }
}

[[PLAIT_AMX, gnu::always_inline]] inline void store_sums(const SumTiles& sums) {
  _tile_stored(0, sums.of[0], kSumsRow);
  _tile_stored(1, sums.of[1], kSumsRow);
  _tile_stored(2, sums.of[2], kSumsRow);
  _tile_stored(3, sums.of[3], kSumsRow);
}

// All columns of one group.
[[gnu::always_inline]] inline SumTiles tiles_of_group(float* sums) {
  return {{sums, sums + 16, sums + 32, sums + 48}};
}

// One step of k: a group's rows by all columns.
[[PLAIT_AMX, gnu::always_inline]] inline void multiply_step(const std::byte* rows,
                                                            const std::byte* panel) {
  _tile_loadd(4, rows, 64);
  _tile_loadd(6, panel, kPanelRow);
  _tile_loadd(7, panel + 64, kPanelRow);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(6, panel + 128, kPanelRow);
  _tile_loadd(7, panel + 192, kPanelRow);
  _tile_dpbf16ps(2, 4, 6);
  _tile_dpbf16ps(3, 4, 7);
}

}  // namespace plait::gemm::amx
