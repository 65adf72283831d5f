// A product in f64, made by a plain tiled kernel that shares nothing with the kernels under test.
//
//   DeviceBuffer<double> exact(m * n), magnitude(m * n);
//   reference_product(x, w, {.m = m, .n = n, .k = k}, exact.data(), magnitude.data(), stream);
//
// A product of two bf16 or f16 values is exact in f64, and a sum of k of them is off by at most
// k * 2^-53 of its magnitude: nothing beside the error of an f32 sum. An H100 does about 3 Tmul/s.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/device.cuh"
#include "gpu/fill.cuh"

namespace plait::gpu {

struct ProductShape {
  std::int64_t m, n, k;
  bool in_out = false;        // weight: false: [n, k], true: [k, n]
  std::int64_t x_stride = 0;  // elements from row to row of x [m, k]; 0: k
  std::int64_t w_stride = 0;  // elements from row to row of the weight; 0: its row length
};

namespace detail {

inline constexpr int kReferenceTile = 64;   // rows and columns of out for one block
inline constexpr int kReferenceDepth = 16;  // elements of k for one step
inline constexpr int kReferenceSide = 4;    // a thread makes 4 x 4 elements, 16 apart

template <class X>
__device__ double element_or_zero(const X* data, std::int64_t offset, bool inside) {
  return inside ? static_cast<double>(widened(data[offset])) : 0.0;
}

struct ReferenceTile {
  double x[kReferenceDepth][kReferenceTile + 1];
  double w[kReferenceDepth][kReferenceTile + 1];
};

// 256 threads load 64 rows of 16 elements of each operand; elements outside are zeros.
template <class X, class W>
__device__ void load_reference(ReferenceTile& tile, const X* x, const W* w,
                               const ProductShape& shape, std::int64_t k0) {
  for (int i = threadIdx.x; i < kReferenceTile * kReferenceDepth; i += blockDim.x) {
    const int row = i / kReferenceDepth, depth = i % kReferenceDepth;
    const std::int64_t m = blockIdx.y * kReferenceTile + row, k = k0 + depth;
    tile.x[depth][row] = element_or_zero(x, m * shape.x_stride + k, m < shape.m && k < shape.k);
    // Neighbouring threads read neighbouring elements in both layouts.
    const int column = shape.in_out ? i % kReferenceTile : row;
    const int w_depth = shape.in_out ? i / kReferenceTile : depth;
    const std::int64_t n = blockIdx.x * kReferenceTile + column, w_k = k0 + w_depth;
    const std::int64_t offset = shape.in_out ? w_k * shape.w_stride + n : n * shape.w_stride + w_k;
    tile.w[w_depth][column] = element_or_zero(w, offset, n < shape.n && w_k < shape.k);
  }
}

struct ReferenceSums {
  double exact[kReferenceSide][kReferenceSide] = {};
  double magnitude[kReferenceSide][kReferenceSide] = {};
};

__device__ inline void add_reference(const ReferenceTile& tile, ReferenceSums& sums) {
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  for (int depth = 0; depth < kReferenceDepth; ++depth) {
#pragma unroll
    for (int i = 0; i < kReferenceSide; ++i) {
#pragma unroll
      for (int j = 0; j < kReferenceSide; ++j) {
        const double a = tile.x[depth][row + 16 * i], b = tile.w[depth][column + 16 * j];
        sums.exact[i][j] = fma(a, b, sums.exact[i][j]);
        sums.magnitude[i][j] = fma(fabs(a), fabs(b), sums.magnitude[i][j]);
      }
    }
  }
}

template <class X, class W>
__global__ void __launch_bounds__(256)
    reference_kernel(const X* x, const W* w, ProductShape shape, double* exact, double* magnitude) {
  __shared__ ReferenceTile tile;
  ReferenceSums sums;
  for (std::int64_t k0 = 0; k0 < shape.k; k0 += kReferenceDepth) {
    load_reference(tile, x, w, shape, k0);
    __syncthreads();
    add_reference(tile, sums);
    __syncthreads();
  }
  for (int i = 0; i < kReferenceSide; ++i) {
    for (int j = 0; j < kReferenceSide; ++j) {
      const std::int64_t m = blockIdx.y * kReferenceTile + threadIdx.x / 16 + 16 * i;
      const std::int64_t n = blockIdx.x * kReferenceTile + threadIdx.x % 16 + 16 * j;
      if (m >= shape.m || n >= shape.n) continue;
      exact[m * shape.n + n] = sums.exact[i][j];
      if (magnitude != nullptr) magnitude[m * shape.n + n] = sums.magnitude[i][j];
    }
  }
}

}  // namespace detail

// Writes x * w to exact [m, n], and the sums of |x||w| to magnitude [m, n] unless it is null. To
// check a few rows only, pass a pointer to the first of them, and their number as m.
template <class X, class W>
void reference_product(const X* x, const W* w, ProductShape shape, double* exact, double* magnitude,
                       cudaStream_t stream = nullptr) {
  if (shape.x_stride == 0) shape.x_stride = shape.k;
  if (shape.w_stride == 0) shape.w_stride = shape.in_out ? shape.n : shape.k;
  const auto tiles = [](std::int64_t length) {
    return static_cast<unsigned>((length + detail::kReferenceTile - 1) / detail::kReferenceTile);
  };
  const dim3 grid(tiles(shape.n), tiles(shape.m));
  detail::reference_kernel<<<grid, 256, 0, stream>>>(x, w, shape, exact, magnitude);
  check_launch();
}

}  // namespace plait::gpu
