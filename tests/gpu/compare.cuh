// Comparisons of results, counted on the device.
//
//   count_different_bytes(serial.data(), fused.data(), bytes)      // 0: the same bits
//   worst_error(out.data(), exact.data(), magnitude.data(), count, terms).ratio   // <= 1: right
//   count_inexact(out.data(), exact.data(), count)                 // integer inputs: must be 0
#pragma once

#include <cmath>

#include "gpu/device.cuh"
#include "gpu/fill.cuh"

namespace plait::gpu {

// The element whose error is the largest share of its bound.
struct WorstError {
  double ratio = 0;         // |got - exact| / bound; infinite for a NaN
  std::int64_t index = -1;  // row-major
  double got = 0, exact = 0, bound = 0;
};

// u, such that rounding to T changes a value by at most u times its size.
template <class T>
__host__ __device__ constexpr double unit_roundoff_of() {
  return 0x1p-24;
}
template <>
__host__ __device__ constexpr double unit_roundoff_of<__nv_bfloat16>() {
  return 0x1p-8;
}
template <>
__host__ __device__ constexpr double unit_roundoff_of<__half>() {
  return 0x1p-11;
}

// Half the distance between the smallest numbers of T: the error of rounding tiny results.
template <class T>
__host__ __device__ constexpr double tiny_roundoff_of() {
  return 0;
}
template <>
__host__ __device__ constexpr double tiny_roundoff_of<__half>() {
  return 0x1p-25;
}

// |sum in f32 - exact| <= gamma_bound(terms) * magnitude. Tensor cores cut off what they can't keep
// instead of rounding to nearest, so one addition costs up to 2^-23, not 2^-24.
__host__ __device__ inline double gamma_bound(double terms) {
  const double nu = terms * 0x1p-23;
  return nu / (1.0 - nu);
}

// `terms`: k, plus the number of ranks if their partial sums are added in f32. The bound grows by
// `wire_roundings * wire_roundoff` if partial sums were rounded on their way.
struct ErrorTerms {
  double terms = 0;
  double wire_roundings = 0;
  double wire_roundoff = 0;
};

template <class T>
__host__ __device__ double error_bound(double exact, double magnitude, const ErrorTerms& terms) {
  const double before =
      (gamma_bound(terms.terms) + terms.wire_roundings * terms.wire_roundoff) * magnitude;
  return before + unit_roundoff_of<T>() * (fabs(exact) + before) + tiny_roundoff_of<T>();
}

namespace detail {

inline constexpr int kCompareBlocks = 528;
inline constexpr int kCompareThreads = 256;

static __global__ void count_bytes_kernel(const unsigned char* a, const unsigned char* b,
                                          std::int64_t bytes, unsigned long long* count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long different = 0;
  const auto* wide_a = reinterpret_cast<const unsigned*>(a);
  const auto* wide_b = reinterpret_cast<const unsigned*>(b);
  for (std::int64_t i = first; i < bytes / 4; i += step)
    different += __popc(__vcmpne4(wide_a[i], wide_b[i])) / 8;
  for (std::int64_t i = bytes / 4 * 4 + first; i < bytes; i += step) different += a[i] != b[i];
  if (different != 0) atomicAdd(count, different);
}

template <class T>
__global__ void count_inexact_kernel(const T* out, const double* exact, std::int64_t count,
                                     unsigned long long* wrong) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  unsigned long long different = 0;
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const float right = widened(narrowed<T>(static_cast<float>(exact[i])));
    different += !(widened(out[i]) == right);
  }
  if (different != 0) atomicAdd(wrong, different);
}

// Each thread keeps the worst element that it saw; the host looks through the threads' answers.
template <class T>
__global__ void worst_error_kernel(const T* out, const double* exact, const double* magnitude,
                                   std::int64_t count, ErrorTerms terms, WorstError* worst) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = blockIdx.x * blockDim.x + threadIdx.x;
  WorstError mine;
  for (std::int64_t i = first; i < count; i += step) {
    const double got = widened(out[i]), bound = error_bound<T>(exact[i], magnitude[i], terms);
    const double error = fabs(got - exact[i]);
    double ratio = error == 0 ? 0.0 : error / bound;
    if (ratio != ratio) ratio = INFINITY;
    if (mine.index < 0 || ratio > mine.ratio)
      mine = {.ratio = ratio, .index = i, .got = got, .exact = exact[i], .bound = bound};
  }
  worst[first] = mine;
}

}  // namespace detail

// Pointers are multiples of 4 bytes. Waits for the device.
inline std::int64_t count_different_bytes(const void* a, const void* b, std::int64_t bytes) {
  DeviceBuffer<unsigned long long> count(1);
  count.fill_bytes(0);
  detail::count_bytes_kernel<<<detail::kCompareBlocks, detail::kCompareThreads>>>(
      static_cast<const unsigned char*>(a), static_cast<const unsigned char*>(b), bytes,
      count.data());
  check_launch();
  return static_cast<std::int64_t>(count.to_host().front());
}

// How many elements are not `exact`, rounded once to T. For products of small integers, whose sums
// are exact in f32. A NaN counts. Waits for the device.
template <class T>
std::int64_t count_inexact(const T* out, const double* exact, std::int64_t count) {
  DeviceBuffer<unsigned long long> wrong(1);
  wrong.fill_bytes(0);
  detail::count_inexact_kernel<<<detail::kCompareBlocks, detail::kCompareThreads>>>(
      out, exact, count, wrong.data());
  check_launch();
  return static_cast<std::int64_t>(wrong.to_host().front());
}

// Waits for the device.
template <class T>
WorstError worst_error(const T* out, const double* exact, const double* magnitude,
                       std::int64_t count, const ErrorTerms& terms) {
  DeviceBuffer<WorstError> each(detail::kCompareBlocks * detail::kCompareThreads);
  detail::worst_error_kernel<<<detail::kCompareBlocks, detail::kCompareThreads>>>(
      out, exact, magnitude, count, terms, each.data());
  check_launch();
  WorstError worst;
  for (const WorstError& one : each.to_host())
    if (one.index >= 0 && (worst.index < 0 || one.ratio > worst.ratio)) worst = one;
  return worst;
}

}  // namespace plait::gpu
