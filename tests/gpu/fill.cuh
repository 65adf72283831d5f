// Input values that depend on a seed and an index alone, made on the device.
//
//   fill_random(x.data(), x.count(), /*seed=*/1, stream);             // uniform in [-1, 1]
//   fill_integers(w.data(), w.count(), /*seed=*/2, /*most=*/3, stream);   // -3, -2, ..., 3
//
// Products of small integers are exact in f32 whatever their order, as long as no sum passes 2^24:
// then every element of a product has one right value, and a test can ask for that value. With
// uniform values the worst-case bound grows with k^2, and is too wide to find a missing term.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/device.cuh"

namespace plait::gpu {

// The finaliser of splitmix64: neighbouring indices give unrelated bits.
__host__ __device__ inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed * 0x9e3779b97f4a7c15U + index;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

template <class T>
__host__ __device__ T narrowed(float value) {
  return static_cast<T>(value);
}
template <>
__host__ __device__ inline __nv_bfloat16 narrowed(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__host__ __device__ inline __half narrowed(float value) {
  return __float2half_rn(value);
}

template <class T>
__host__ __device__ float widened(T value) {
  return static_cast<float>(value);
}

// The value at `index` of a tensor of uniform values, before it is rounded to the tensor's dtype.
__host__ __device__ inline float random_value(std::uint64_t seed, std::uint64_t index) {
  return static_cast<float>(random_bits(seed, index) >> 40) * 0x1p-23F - 1.0F;
}

__host__ __device__ inline float random_integer(std::uint64_t seed, std::uint64_t index, int most) {
  const auto values = static_cast<std::uint64_t>(2 * most + 1);
  return static_cast<float>(static_cast<int>((random_bits(seed, index) >> 32) % values) - most);
}

namespace detail {

template <class T>
__global__ void fill_random_kernel(T* data, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = narrowed<T>(random_value(seed, static_cast<std::uint64_t>(i)));
}

template <class T>
__global__ void fill_integers_kernel(T* data, std::int64_t count, std::uint64_t seed, int most) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = narrowed<T>(random_integer(seed, static_cast<std::uint64_t>(i), most));
}

inline constexpr int kFillBlocks = 2048;
inline constexpr int kFillThreads = 256;

}  // namespace detail

// T: float, __nv_bfloat16, __half.
template <class T>
void fill_random(T* data, std::int64_t count, std::uint64_t seed, cudaStream_t stream = nullptr) {
  detail::fill_random_kernel<<<detail::kFillBlocks, detail::kFillThreads, 0, stream>>>(data, count,
                                                                                       seed);
  check_launch();
}

// Whole numbers from -most to most. T: float, __nv_bfloat16, __half, std::int8_t.
template <class T>
void fill_integers(T* data, std::int64_t count, std::uint64_t seed, int most,
                   cudaStream_t stream = nullptr) {
  detail::fill_integers_kernel<<<detail::kFillBlocks, detail::kFillThreads, 0, stream>>>(
      data, count, seed, most);
  check_launch();
}

}  // namespace plait::gpu
