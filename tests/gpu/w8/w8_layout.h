// How a packed 8-bit weight lies in memory: threads that multiply find their bytes together.
//
// A block is 64 output columns ("features"), padded with zeros. For each block in turn, chunks of
// 64 k in ascending order, each a record:
//
//   4096 bytes   two halves of 32 k, 16 bytes for each of a warpgroup's 128 threads in order:
//                the thread's values of two wgmma operands, one after the other
//   per group of the chunk (two with groups of 32, otherwise one; none unless grouped):
//     256 bytes  scales, f32, a pair for each of the 32 pairs of rows
//      64 bytes  offsets, s8, likewise
//
// Row r of a block's 64 rows, as wgmma counts them, holds the feature feature_of_row(r): chosen so
// that after a transposition in registers a thread has four neighbouring features.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define PLAIT_W8_BOTH __host__ __device__
#else
#define PLAIT_W8_BOTH
#endif

namespace plait::gpu::w8 {

inline constexpr int kBlockFeatures = 64;
inline constexpr int kChunk = 64;
inline constexpr int kChunkBytes = kBlockFeatures * kChunk;
inline constexpr int kHalfBytes = kChunkBytes / 2;
inline constexpr int kRowPairs = kBlockFeatures / 2;
inline constexpr int kScaleBytes = kRowPairs * 8;
inline constexpr int kGroupBytes = kScaleBytes + kRowPairs * 2;

// Groups with a record of their own in a chunk; 0 for a weight that is not grouped.
PLAIT_W8_BOTH constexpr int groups_of_chunk(int group) {
  if (group == 0) return 0;
  return group < kChunk ? kChunk / group : 1;
}

PLAIT_W8_BOTH constexpr int record_bytes(int group) {
  return kChunkBytes + groups_of_chunk(group) * kGroupBytes;
}

// The kernel takes this many chunks a round; k is padded to whole rounds.
PLAIT_W8_BOTH constexpr int chunks_of_round(int group) {
  return group > 2 * kChunk ? group / kChunk : 2;
}

PLAIT_W8_BOTH constexpr std::int64_t padded_chunks(std::int64_t k, int group) {
  const int round = chunks_of_round(group);
  return (k + kChunk * round - 1) / (kChunk * round) * round;
}

PLAIT_W8_BOTH constexpr std::int64_t blocks(std::int64_t n) {
  return (n + kBlockFeatures - 1) / kBlockFeatures;
}

// The first feature of the pair of rows g and g + 8 of a warp's 16 rows; the other is 2 further.
// g: 0 1 2 3 4 5 6 7 -> 0 1 4 5 8 9 12 13
PLAIT_W8_BOTH constexpr int feature_of_row(int g) { return 4 * (g / 2) + g % 2; }

}  // namespace plait::gpu::w8
