// Makes a KernelSet.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>

#include "gemm/cuda/product.cuh"
#include "overlap/cuda/comm_first.cuh"
#include "overlap/cuda/compute_first.cuh"
#include "overlap/cuda/kernel_set.h"

namespace plait::overlap::cuda {

namespace gemm = plait::gemm::cuda;

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
    return start<Shape, ComputeFirst<typename Shape::Geometry>>(matrices, share, args,
                                                                args.call.order.count(), stream);
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
      return start<OfWidth, CommFirst<typename OfWidth::Geometry>>(matrices, share, args,
                                                                   args.call.order.count(), stream);
    }
  }

  template <int kIndex>
  static const void* comm_first_kernel() {
    using OfWidth = ShapeOf<kTileWidths[kIndex]>;
    return reinterpret_cast<const void*>(
        &gemm::product_kernel<OfWidth, CommFirst<typename OfWidth::Geometry>>);
  }

  static cudaError_t load() {
    static_assert(std::size(kTileWidths) == 3);
    const void* kernels[] = {
        reinterpret_cast<const void*>(
            &gemm::product_kernel<Shape, ComputeFirst<typename Shape::Geometry>>),
        comm_first_kernel<0>(), comm_first_kernel<1>(), comm_first_kernel<2>()};
    for (const void* kernel : kernels) {
      const cudaError_t status = load_kernel(kernel);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  }

  static constexpr KernelSet set() { return {compute_first, comm_first, load}; }
};

}  // namespace plait::overlap::cuda
