// The tiles that products by 8-bit weights are cut into, and the arguments of a launch.
#pragma once

#include <cuda_runtime.h>

#include "gpu/w8/w8.cuh"
#include "gpu/w8/w8_memory.h"
#include "gpu/w8/w8_store.cuh"

namespace plait::gpu::w8 {

// Tiles in bands of a few tiles of tokens: blocks that run at the same time share rows of X and
// columns of W in the L2 cache.
struct BandOrder {
  int feature_tiles, token_tiles;

  static constexpr int kBand = 8;

  __device__ int tiles() const { return feature_tiles * token_tiles; }
  __device__ W8Tile at(int place) const {
    const int of_band = kBand * feature_tiles;
    const int first = place / of_band * kBand;
    const int width = min(kBand, token_tiles - first);
    const int within = place % of_band;
    return {within / width, first + within % width};
  }
  __device__ void before_load(W8Tile) const {}
};

// Shapes of tiles: the number in the table of w8.cu, then Config's sizes.
template <class In, int group, int tile>
struct TileConfig;

#define PLAIT_W8_TILE(tile, warpgroups, blocks, tokens, chunks, stages, per_sm)         \
  template <class In, int group>                                                        \
  struct TileConfig<In, group, tile> {                                                  \
    using Type = Config<In, group, warpgroups, blocks, tokens, chunks, stages, per_sm>; \
  }
// Grouped records are larger: the numbers of stages leave room for groups of 32.
PLAIT_W8_TILE(0, 1, 1, 8, 2, 9, 2);
PLAIT_W8_TILE(1, 1, 1, 16, 2, 7, 2);
PLAIT_W8_TILE(2, 1, 1, 32, 2, 6, 2);
PLAIT_W8_TILE(3, 1, 1, 64, 1, 8, 2);
PLAIT_W8_TILE(4, 1, 1, 128, 1, 10, 1);
PLAIT_W8_TILE(5, 2, 1, 128, 1, 8, 1);
PLAIT_W8_TILE(6, 2, 2, 128, 1, 6, 1);
#undef PLAIT_W8_TILE
inline constexpr int kTiles = 7;

struct Launch {
  CUtensorMap map;
  W8Weights weights;
  StoreRows store;
  int processors;
};

// Every tile with every group size, for one type of rows. Each type has a file of its own, so that
// they compile at the same time.
template <class In>
cudaError_t launch_tile(int tile, int group, const Launch& launch, cudaStream_t stream);

}  // namespace plait::gpu::w8
