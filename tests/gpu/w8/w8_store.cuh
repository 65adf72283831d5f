// Stores finished sums as rows of an ordinary matrix, after adding a bias.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "gpu/w8/w8.cuh"
#include "plait/dtype.h"

namespace plait::gpu::w8 {

// Transposes 8 x 8 values of 16 bits that a warp holds: afterwards lane l has those of row l / 4
// in columns 2 (l % 4) and 2 (l % 4) + 1, of the matrix whose columns were rows.
__device__ inline std::uint32_t transposed(std::uint32_t pair) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

__device__ inline std::uint32_t packed(float a, float b, __nv_bfloat16) {
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(b), "f"(a));
  return result;
}
__device__ inline std::uint32_t packed(float a, float b, __half) {
  std::uint32_t result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(b), "f"(a));
  return result;
}

// Four neighbouring features of a token.
template <class Out>
struct Four;

template <>
struct Four<float> {
  float values[4];
};
template <class Out>
struct Four {
  std::uint32_t pairs[2];
};

// v: features f, f + 2 of tokens t, t + 1 in the order v[f][t], of all lanes. Returns to lane l the
// features 4 (l % 4) to 4 (l % 4) + 3 of token l / 4.
template <class Out>
__device__ inline Four<Out> four_features(const float (&v)[4]) {
  return {{transposed(packed(v[0], v[1], Out{})), transposed(packed(v[2], v[3], Out{}))}};
}

__device__ inline void transposed_floats(float a, float b, float& first, float& second) {
  const std::uint32_t x = __float_as_uint(a);
  const std::uint32_t y = __float_as_uint(b);
  const std::uint32_t low = transposed(__byte_perm(x, y, 0x5410));
  const std::uint32_t high = transposed(__byte_perm(x, y, 0x7632));
  first = __uint_as_float(__byte_perm(low, high, 0x5410));
  second = __uint_as_float(__byte_perm(low, high, 0x7632));
}

template <>
__device__ inline Four<float> four_features<float>(const float (&v)[4]) {
  Four<float> result;
  transposed_floats(v[0], v[1], result.values[0], result.values[1]);
  transposed_floats(v[2], v[3], result.values[2], result.values[3]);
  return result;
}

struct StoreRows {
  void* out;
  std::int64_t stride;  // elements from a row to the next
  const float* bias;    // [n], or null
  int m, n;
  Dtype dtype;
  bool whole_vectors;  // four features may be stored at once wherever all four exist

  template <int count>
  __device__ __forceinline__ void operator()(const W8Place& place, float (&sums)[count]) const {
    if (bias != nullptr) add_bias(place, sums);
    if (dtype == Dtype::bf16) {
      store<__nv_bfloat16>(place, sums);
    } else if (dtype == Dtype::f16) {
      store<__half>(place, sums);
    } else {
      store<float>(place, sums);
    }
  }

 private:
  template <int count>
  __device__ __forceinline__ void add_bias(const W8Place& place, float (&sums)[count]) const {
    const float low = place.feature < n ? bias[place.feature] : 0;
    const float high = place.feature + 2 < n ? bias[place.feature + 2] : 0;
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      sums[i] = __fadd_rn(sums[i], low);
      sums[i + 1] = __fadd_rn(sums[i + 1], low);
      sums[i + 2] = __fadd_rn(sums[i + 2], high);
      sums[i + 3] = __fadd_rn(sums[i + 3], high);
    }
  }

  template <class Out, int count>
  __device__ __forceinline__ void store(const W8Place& place, const float (&sums)[count]) const {
    const int lane = threadIdx.x % 32;
    const int feature = place.feature / 16 * 16 + lane % 4 * 4;
    const int token = place.token - lane % 4 * 2 + lane / 4;
    Out* row = static_cast<Out*>(out) + token * stride + feature;
#pragma unroll
    for (int j = 0; j < count / 4; ++j) {
      const float v[4] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
      const Four<Out> four = four_features<Out>(v);
      if (token + 8 * j < m) put(row + 8 * j * stride, four, n - feature);
    }
  }

  // Stores as many of the four as exist.
  template <class Out>
  __device__ __forceinline__ void put(Out* to, const Four<Out>& four, int exist) const {
    if (whole_vectors && exist >= 4) {
      if constexpr (sizeof(Out) == 4) {
        *reinterpret_cast<float4*>(to) =
            make_float4(four.values[0], four.values[1], four.values[2], four.values[3]);
      } else {
        *reinterpret_cast<uint2*>(to) = make_uint2(four.pairs[0], four.pairs[1]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= exist) continue;
      if constexpr (sizeof(Out) == 4) {
        to[i] = four.values[i];
      } else {
        reinterpret_cast<std::uint16_t*>(to)[i] =
            static_cast<std::uint16_t>(four.pairs[i / 2] >> (i % 2 * 16));
      }
    }
  }
};

}  // namespace plait::gpu::w8
