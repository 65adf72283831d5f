// Makes a KernelSet.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>

#include "overlap/cuda/comm_first.cuh"
#include "overlap/cuda/compute_first.cuh"
#include "overlap/cuda/kernel_set.h"

namespace plait::overlap::cuda {

namespace gemm = plait::gemm::cuda;

inline constexpr int kStepThreads = 256;

// Copies tiles that were multiplied into this rank's own memory to the slots of their owners.
template <class Shape>
__global__ void __launch_bounds__(kStepThreads)
    exchange_kernel(const __grid_constant__ ComputeFirstArgs args, const char* staged) {
  ComputeFirst<Shape>(args).exchange(staged);
}

__device__ inline int warp_of_grid() {
  return static_cast<int>(blockIdx.x * kStepThreads + threadIdx.x) / 32;
}
__device__ inline int warps_of_grid() { return static_cast<int>(gridDim.x) * kStepThreads / 32; }

// Adds up own rows, and fetches other ranks' finished rows.
template <class Shape>
__global__ void __launch_bounds__(kStepThreads)
    work_kernel(const __grid_constant__ ComputeFirstArgs args) {
  ComputeFirst<Shape>(args).work(static_cast<int>(threadIdx.x) % 32, warp_of_grid(),
                                 warps_of_grid());
}

template <class Shape>
__global__ void __launch_bounds__(kStepThreads)
    push_kernel(const __grid_constant__ CommFirstArgs args) {
  CommFirst<Shape>(args).push(warp_of_grid(), warps_of_grid(), static_cast<int>(threadIdx.x) % 32);
}

template <class Shape>
__global__ void __launch_bounds__(32)
    wait_for_rows_kernel(const __grid_constant__ CommFirstArgs args) {
  CommFirst<Shape> rows(args);
  for (int step = 0; step < args.call.order.taken; ++step) {
    const int first = args.call.order.unit_at(step) * Shape::kUnitRows;
    for (int row = first; row < first + Shape::kUnitRows; row += Shape::kRows)
      rows.before_load(row, static_cast<int>(threadIdx.x));
  }
}

template <class Element, class Layout>
struct Kernels {
  template <int kColumns>
  using ShapeOf = gemm::ProductShape<Element, Layout, kColumns>;
  using Shape = ShapeOf<kTileColumns>;
  static_assert(Shape::kRows == kTileRows && Shape::kUnitRows == kUnitRows);

  template <class OfWidth>
  static typename OfWidth::Params params_of(const Matrices& matrices, int which) {
    using Mainloop = typename OfWidth::Mainloop;
    typename Mainloop::StrideA x_stride{};
    cute::get<0>(x_stride) = matrices.x_stride[which];
    typename Mainloop::StrideB weight_stride{};
    constexpr int kStrided = std::is_same_v<Layout, gemm::OutIn> ? 0 : 1;
    cute::get<kStrided>(weight_stride) = matrices.weight_stride;
    return Mainloop::to_underlying_arguments(
        cute::make_shape(matrices.rows_in_memory, matrices.columns_in_memory, matrices.k, 1),
        {static_cast<const Element*>(matrices.x[which]), x_stride,
         static_cast<const Element*>(matrices.weight), weight_stride},
        nullptr);
  }

  template <class OfWidth, class Hooks>
  static cudaError_t start(const Matrices& matrices, const Share& share,
                           const typename Hooks::Args& hooks, int tiles, cudaStream_t stream) {
    if (tiles == 0) return cudaSuccess;
    const auto kernel = &gemm::product_kernel<OfWidth, Hooks>;
    constexpr int kBytes = static_cast<int>(sizeof(typename OfWidth::Storage));
    gemm::ProductArgs<OfWidth> args = {
        .x = {params_of<OfWidth>(matrices, 0)}, .m = matrices.m, .n = matrices.n, .k = matrices.k};
    for (int which = 1; which < gemm::kMatrices; ++which) {
      args.x[which] =
          matrices.x[which] == matrices.x[0] ? args.x[0] : params_of<OfWidth>(matrices, which);
    }
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {gemm::kClusterBlocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(gemm::kThreads);
    config.dynamicSmemBytes = kBytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    config.gridDim = dim3(gemm::kClusterBlocks);
    int most = 0;
    const cudaError_t asked = most_clusters<OfWidth, Hooks>(config, most);
    if (asked != cudaSuccess) return asked;
    const int clusters = std::min({share.blocks / gemm::kClusterBlocks, most, tiles});
    if (clusters < 1) return cudaErrorInvalidConfiguration;
    config.gridDim = dim3(static_cast<unsigned int>(clusters * gemm::kClusterBlocks));
    return cudaLaunchKernelEx(&config, kernel, args, hooks);
  }

  // How many clusters of the kernel fit on the current GPU. The first time it also gives the kernel
  // its shared memory there. Both take long, so each GPU's answer is kept.
  template <class OfWidth, class Hooks>
  static cudaError_t most_clusters(const cudaLaunchConfig_t& config, int& most) {
    const auto kernel = &gemm::product_kernel<OfWidth, Hooks>;
    constexpr std::size_t kMostGpus = 64;
    static std::array<std::atomic<int>, kMostGpus> known = {};
    int device = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    const auto gpu = static_cast<std::size_t>(device);
    if (gpu < kMostGpus) most = known[gpu].load(std::memory_order_relaxed);
    if (most > 0) return cudaSuccess;
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(config.dynamicSmemBytes));
    if (status != cudaSuccess) return status;
    status = cudaOccupancyMaxActiveClusters(&most, kernel, &config);
    if (status == cudaSuccess && gpu < kMostGpus) known[gpu].store(most, std::memory_order_relaxed);
    return status;
  }

  static cudaError_t compute_first(const Matrices& matrices, const Share& share,
                                   const ComputeFirstArgs& args, cudaStream_t stream) {
    return start<Shape, ComputeFirst<Shape>>(matrices, share, args, args.call.order.count(),
                                             stream);
  }

  static cudaError_t comm_first(const Matrices& matrices, const Share& share,
                                const CommFirstArgs& args, cudaStream_t stream) {
    return comm_first_of<0>(matrices, share, args, stream);
  }
  template <int kIndex>
  static cudaError_t comm_first_of(const Matrices& matrices, const Share& share,
                                   const CommFirstArgs& args, cudaStream_t stream) {
    if constexpr (kIndex == std::size(kTileWidths)) {
      return cudaErrorInvalidValue;
    } else {
      using OfWidth = ShapeOf<kTileWidths[kIndex]>;
      if (args.width != OfWidth::kColumns)
        return comm_first_of<kIndex + 1>(matrices, share, args, stream);
      return start<OfWidth, CommFirst<OfWidth>>(matrices, share, args, args.call.order.count(),
                                                stream);
    }
  }

  static unsigned int blocks(const Share& share) {
    return static_cast<unsigned int>(std::max(share.blocks, 1));
  }
  static cudaError_t exchange(const Share& share, const ComputeFirstArgs& args, const char* staged,
                              cudaStream_t stream) {
    exchange_kernel<Shape><<<blocks(share), kStepThreads, 0, stream>>>(args, staged);
    return cudaGetLastError();
  }
  static cudaError_t work(const Share& share, const ComputeFirstArgs& args, cudaStream_t stream) {
    work_kernel<Shape><<<blocks(share), kStepThreads, 0, stream>>>(args);
    return cudaGetLastError();
  }
  static cudaError_t push(const Share& share, const CommFirstArgs& args, cudaStream_t stream) {
    push_kernel<Shape><<<blocks(share), kStepThreads, 0, stream>>>(args);
    return cudaGetLastError();
  }
  static cudaError_t wait_for_rows(const CommFirstArgs& args, cudaStream_t stream) {
    wait_for_rows_kernel<Shape><<<1, 32, 0, stream>>>(args);
    return cudaGetLastError();
  }

  template <int kIndex>
  static const void* comm_first_kernel() {
    using OfWidth = ShapeOf<kTileWidths[kIndex]>;
    return reinterpret_cast<const void*>(&gemm::product_kernel<OfWidth, CommFirst<OfWidth>>);
  }

  // Loads the kernels now. Otherwise a kernel's first launch loads it, which can wait until the GPU
  // is idle. That would be a deadlock if another rank's kernel waits there for this launch.
  static cudaError_t load() {
    static_assert(std::size(kTileWidths) == 3);
    const void* kernels[] = {
        reinterpret_cast<const void*>(&gemm::product_kernel<Shape, ComputeFirst<Shape>>),
        comm_first_kernel<0>(),
        comm_first_kernel<1>(),
        comm_first_kernel<2>(),
        reinterpret_cast<const void*>(&exchange_kernel<Shape>),
        reinterpret_cast<const void*>(&work_kernel<Shape>),
        reinterpret_cast<const void*>(&push_kernel<Shape>),
        reinterpret_cast<const void*>(&wait_for_rows_kernel<Shape>)};
    cudaFuncAttributes attributes;
    for (const void* kernel : kernels) {
      const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  }

  static constexpr KernelSet set() {
    return {compute_first, comm_first, exchange, work, push, wait_for_rows, load};
  }
};

}  // namespace plait::overlap::cuda
