// A product by an 8-bit weight for the program w8_check: its numbers, the weight in both forms, the
// product by the kernels, and the exact product.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu/device.cuh"
#include "gpu/w8/w8.h"

namespace plait::gpu {

// How many expectations held, and how many did not.
inline int passed = 0;
inline int failures = 0;

// Ends the program with a sentence about `what` if a call has failed.
inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(2);
}

inline void expect(bool good, const std::string& what) {
  good ? ++passed : ++failures;
  if (!good) std::printf("WRONG: %s\n", what.c_str());
  std::fflush(stdout);
}

__host__ __device__ inline std::uint32_t mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return static_cast<std::uint32_t>(x ^ (x >> 33));
}

struct Scheme {
  int group;  // 0: per channel
  bool offsets;
  bool per_tensor;
};

struct Numbers {
  bool whole;  // small whole numbers and powers of two
  std::uint64_t seed;
};

static __global__ void fill_values(std::int8_t* to, std::size_t count, Numbers numbers) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t r = mixed(i + numbers.seed);
  to[i] = static_cast<std::int8_t>(numbers.whole ? static_cast<int>(r % 15) - 7
                                                 : static_cast<int>(r % 256) - 128);
}

static __global__ void fill_scales(float* to, std::size_t count, Numbers numbers, bool same) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t r = mixed((same ? 0 : i) + numbers.seed + 77);
  to[i] = numbers.whole ? ldexpf(1, static_cast<int>(r % 3)) : 0.001F + r * 1e-12F;
  if (r % 5 == 0) to[i] = -to[i];
}

template <class T>
__global__ void fill_rows(T* to, std::size_t count, Numbers numbers) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const std::uint32_t r = mixed(i + numbers.seed + 991);
  to[i] = T(numbers.whole ? static_cast<float>(static_cast<int>(r % 5) - 2)
                          : static_cast<float>(static_cast<int>(r)) * 4.6e-10F);
}

struct Problem {
  const void* x;
  const std::int8_t* values;
  const float* scales;
  const std::int8_t* offsets;
  const float* bias;
  int m, n, k, x_stride, group;
  bool bf16;
};

// The sum in f64, and the sum of magnitudes that its bound needs.
static __global__ void reference(Problem p, double* sum, double* size) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  const int m = blockIdx.y;
  if (n >= p.n) return;
  double total = 0;
  double magnitudes = 0;
  for (int k = 0; k < p.k; ++k) {
    const std::size_t at = static_cast<std::size_t>(m) * p.x_stride + k;
    const double x = p.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(p.x)[at])
                            : __half2float(static_cast<const __half*>(p.x)[at]);
    const std::size_t part = (p.group == 0 ? 0 : k / p.group) * std::size_t(p.n) + n;
    const int offset = p.offsets == nullptr ? 0 : p.offsets[part];
    const double w = (p.values[static_cast<std::size_t>(n) * p.k + k] + offset) *
                     static_cast<double>(p.scales[part]);
    total += x * w;
    magnitudes += fabs(x * w);
  }
  const double bias = p.bias == nullptr ? 0 : p.bias[n];
  sum[static_cast<std::size_t>(m) * p.n + n] = total + bias;
  size[static_cast<std::size_t>(m) * p.n + n] = magnitudes + fabs(bias);
}

inline unsigned grid_of(std::size_t count) { return static_cast<unsigned>((count + 255) / 256); }

struct Shape {
  int m, n, k;
};

// A weight, rows and everything to multiply them.
struct W8Case {
  Shape shape;
  Scheme scheme;
  Dtype in;
  int x_stride;
  DeviceBuffer<std::int8_t> values;
  DeviceBuffer<float> scales;
  DeviceBuffer<std::int8_t> offsets;
  DeviceBuffer<float> bias;
  DeviceBuffer<std::uint16_t> x;
  W8Weight weight;
  DeviceBuffer<unsigned char> packed;

  static std::size_t parts(const Shape& s, const Scheme& scheme) {
    return scheme.group == 0 ? s.n : std::size_t(s.n) * ((s.k + scheme.group - 1) / scheme.group);
  }

  W8Case(Shape s, Scheme q, Dtype dtype, Numbers numbers)
      : shape(s),
        scheme(q),
        in(dtype),
        x_stride((s.k + 7) / 8 * 8),
        values(std::size_t(s.n) * s.k),
        scales(parts(s, q)),
        offsets(parts(s, q)),
        bias(s.n),
        x(std::size_t(s.m) * x_stride),
        weight{.n = s.n, .k = s.k, .group = q.group},
        packed(w8_bytes(weight)) {
    fill_values<<<grid_of(values.count()), 256>>>(values.data(), values.count(), numbers);
    fill_scales<<<grid_of(scales.count()), 256>>>(scales.data(), scales.count(), numbers,
                                                  q.per_tensor);
    fill_values<<<grid_of(offsets.count()), 256>>>(offsets.data(), offsets.count(),
                                                   {numbers.whole, numbers.seed + 5});
    fill_scales<<<grid_of(bias.count()), 256>>>(bias.data(), bias.count(),
                                                {numbers.whole, numbers.seed + 6}, false);
    if (in == Dtype::bf16) {
      fill_rows<<<grid_of(x.count()), 256>>>(reinterpret_cast<__nv_bfloat16*>(x.data()), x.count(),
                                             numbers);
    } else {
      fill_rows<<<grid_of(x.count()), 256>>>(reinterpret_cast<__half*>(x.data()), x.count(),
                                             numbers);
    }
    // Memory that packing must overwrite wherever the kernel reads.
    must(cudaMemset(packed.data(), 0x7F, packed.count()), "memset");
    weight.memory = packed.data();
    must(pack_w8({.values = values.data(),
                  .scales = scales.data(),
                  .offsets = q.offsets ? offsets.data() : nullptr},
                 weight, nullptr),
         "pack_w8");
    must(cudaDeviceSynchronize(), "packing");
  }

  // The first `rows` rows of the product, with `guard` bytes of 0xA5 behind.
  std::vector<unsigned char> product(int rows, int tile, Dtype out, bool with_bias,
                                     const std::string& what) const {
    constexpr std::size_t kGuard = 256;
    const std::size_t bytes = std::size_t(rows) * shape.n * size_of(out);
    DeviceBuffer<unsigned char> y(bytes + kGuard);
    must(cudaMemset(y.data(), 0xA5, y.count()), "memset");
    const W8Call call = {.x = x.data(),
                         .m = rows,
                         .out = y.data(),
                         .x_stride = x_stride,
                         .bias = with_bias ? bias.data() : nullptr,
                         .in = in,
                         .out_dtype = out};
    const char* refusal = w8_refusal(call, weight);
    if (refusal != nullptr) expect(false, what + ": refused: " + refusal);
    must(multiply_w8(call, weight, tile, nullptr), what.c_str());
    alarm(20);
    must(cudaDeviceSynchronize(), what.c_str());
    alarm(0);
    std::vector<unsigned char> result = y.to_host();
    bool untouched = true;
    for (std::size_t i = bytes; i < result.size(); ++i) untouched &= result[i] == 0xA5;
    if (!untouched) expect(false, what + ": wrote behind the result");
    result.resize(bytes);
    return result;
  }

  void exact(bool with_bias, std::vector<double>& sum, std::vector<double>& size) const {
    DeviceBuffer<double> s(std::size_t(shape.m) * shape.n);
    DeviceBuffer<double> z(s.count());
    const Problem p = {x.data(),
                       values.data(),
                       scales.data(),
                       scheme.offsets ? offsets.data() : nullptr,
                       with_bias ? bias.data() : nullptr,
                       shape.m,
                       shape.n,
                       shape.k,
                       x_stride,
                       scheme.group,
                       in == Dtype::bf16};
    reference<<<dim3((shape.n + 127) / 128, shape.m), 128>>>(p, s.data(), z.data());
    must(cudaDeviceSynchronize(), "reference");
    sum = s.to_host();
    size = z.to_host();
  }

  std::string text() const {
    std::string result = std::string(in == Dtype::bf16 ? "bf16" : "f16") + " m " +
                         std::to_string(shape.m) + " n " + std::to_string(shape.n) + " k " +
                         std::to_string(shape.k);
    result += scheme.group != 0   ? " group " + std::to_string(scheme.group)
              : scheme.per_tensor ? " tensor"
                                  : " channel";
    return result + (scheme.offsets ? " offsets" : "");
  }
};

}  // namespace plait::gpu
