// How a block multiplies: its threads, the tile that it multiplies at a time, and which values of
// the tile each thread has.
#pragma once

namespace plait::gemm::cuda {

inline constexpr int kWarpgroup = 128;
inline constexpr int kThreads = 3 * kWarpgroup;
inline constexpr int kHelpers = 2;  // warps
inline constexpr int kClusterBlocks = 2;
inline constexpr int kSharedBytes = 227 * 1024;  // of a block, at most

// The tiles of a product whose elements have 16 bits, such as Narrow.
template <class Narrow_, int kColumns_>
struct TileGeometry {
  using Narrow = Narrow_;
  static constexpr int kRows = 128;
  static constexpr int kColumns = kColumns_;
  // A staged tile has room for 16 bytes behind each row, so that neighbouring rows lie in other
  // banks of the shared memory.
  static constexpr int kStagedStride = kColumns * 2 + 16;
  static constexpr int kStagedBytes = kRows * kStagedStride;
  static constexpr int kTileThreads = 2 * kWarpgroup;
  static constexpr int kUnitRows = kRows * kClusterBlocks;
};

// A finished tile, as one thread has it: values of single elements in registers.
//
// The thread has rows row(i, r) for i < kRowBlocks and r < 2, and in each of them, for each j <
// kColumnBlocks, the two neighbouring columns from column(j) on.
template <class Geometry>
struct FinishedTile {
  static constexpr int kTileRows = Geometry::kRows;
  static constexpr int kTileColumns = Geometry::kColumns;
  static constexpr int kRowBlocks = 1;
  static constexpr int kColumnBlocks = Geometry::kColumns / 8;
  static constexpr int kThreads = Geometry::kTileThreads;
  static constexpr int kValues = kRowBlocks * kColumnBlocks * 4;

  float (&values)[kValues];
  int first_row;  // of the whole matrix
  int first_column;
  int thread;  // among those of the tile

  static __device__ int row_in_tile(int thread, int i, int r) {
    return (thread / kWarpgroup + i) * 64 + thread % kWarpgroup / 32 * 16 + r * 8 + thread % 32 / 4;
  }
  __device__ int row(int i, int r) const { return first_row + row_in_tile(thread, i, r); }
  __device__ int column(int j) const { return first_column + 8 * j + 2 * (thread % 4); }
  __device__ float& value(int i, int r, int j, int c) {
    return values[c + 2 * r + 4 * j + 4 * kColumnBlocks * i];
  }
};

// Starts a copy from shared memory to a GPU's memory. The number of bytes is a multiple of 16, and
// so are both addresses.
__device__ inline void start_copy(char* to, const char* staged, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(static_cast<unsigned int>(__cvta_generic_to_shared(staged))), "r"(bytes)
               : "memory");
}

}  // namespace plait::gemm::cuda
