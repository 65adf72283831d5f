// Starts the kernel of a tile and a group size. Included by one file for each type of rows.
#pragma once

#include "gpu/w8/w8_tiles.cuh"

namespace plait::gpu::w8 {

template <class C>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  const BandOrder order = {(launch.weights.blocks + C::kTileBlocks - 1) / C::kTileBlocks,
                           (launch.store.m + C::kTokens - 1) / C::kTokens};
  const auto kernel = &multiply_w8<C, BandOrder, StoreRows>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::kSharedBytes);
  if (error != cudaSuccess) return error;
  const int tiles = order.feature_tiles * order.token_tiles;
  const int resident = launch.processors * C::kPerSm;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned int>(tiles < resident ? tiles : resident));
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = C::kSharedBytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, launch.map, launch.weights, order, launch.store);
}

template <class In, int group, int... tiles>
cudaError_t launch_group(int tile, const Launch& start, cudaStream_t stream,
                         std::integer_sequence<int, tiles...>) {
  cudaError_t result = cudaErrorInvalidValue;
  ((tile == tiles ? (result = launch<typename TileConfig<In, group, tiles>::Type>(start, stream), 0)
                  : 0),
   ...);
  return result;
}

template <class In>
cudaError_t launch_tile(int tile, int group, const Launch& start, cudaStream_t stream) {
  constexpr auto kAll = std::make_integer_sequence<int, kTiles>{};
  switch (group) {
    case 0:
      return launch_group<In, 0>(tile, start, stream, kAll);
    case 32:
      return launch_group<In, 32>(tile, start, stream, kAll);
    case 64:
      return launch_group<In, 64>(tile, start, stream, kAll);
    case 128:
      return launch_group<In, 128>(tile, start, stream, kAll);
    case 256:
      return launch_group<In, 256>(tile, start, stream, kAll);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace plait::gpu::w8
