// Stores a finished tile's values: as partial sums in slots, or as rows of a matrix.
//
// A slot keeps a tile in the order in which the threads of a tile have its values in registers:
// warp after warp, and for each warp vectors of 16 bytes, thread after thread. Every store and load
// of a warp is then 512 bytes without gaps, all that a warp has of a tile lies in one piece, and a
// reader with the same kernel's shape finds in its vectors the very elements that it has itself.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "gemm/cuda/tile.cuh"
#include "overlap/cuda/args.h"

namespace plait::overlap::cuda {

using Bfloat = __nv_bfloat16;
using Half = __half;

template <class T>
__device__ inline unsigned int pack_two(float low, float high);
template <>
__device__ inline unsigned int pack_two<Bfloat>(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned int*>(&two);
}
template <>
__device__ inline unsigned int pack_two<Half>(float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned int*>(&two);
}

template <class T>
__device__ inline float2 unpack_two(unsigned int two);
template <>
__device__ inline float2 unpack_two<Bfloat>(unsigned int two) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&two));
}
template <>
__device__ inline float2 unpack_two<Half>(unsigned int two) {
  return __half22float2(*reinterpret_cast<const __half2*>(&two));
}

// The vectors of 16 bytes in which a thread keeps one of its rows of a tile.
template <class Wire, class Tile>
struct Vectors {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(Wire));
  static constexpr int kBlocks = kElements / 2;  // column blocks in one vector
  static constexpr int kPerRow = Tile::kColumnBlocks / kBlocks;
  static constexpr int kPerWarp = Tile::kRowBlocks * 2 * kPerRow * 32;
  static constexpr int kPerTile = kPerWarp * (Tile::kThreads / 32);

  static __device__ int index(int i, int r, int u, int thread) {
    return thread / 32 * kPerWarp + ((i * 2 + r) * kPerRow + u) * 32 + thread % 32;
  }

  static __device__ uint4 pack(Tile& tile, int i, int r, int u) {
    unsigned int words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(Wire) == 4) {
        words[w] = __float_as_uint(tile.value(i, r, 2 * u + w / 2, w % 2));
      } else {
        const int j = 4 * u + w;
        words[w] = pack_two<Wire>(tile.value(i, r, j, 0), tile.value(i, r, j, 1));
      }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

  static __device__ void unpack(const uint4& vector, float (&values)[kElements]) {
    const unsigned int words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(Wire) == 4) {
        values[w] = __uint_as_float(words[w]);
      } else {
        const float2 two = unpack_two<Wire>(words[w]);
        values[2 * w] = two.x;
        values[2 * w + 1] = two.y;
      }
    }
  }
};

// For what other ranks have written, read once. The acquire of its flag comes before.
__device__ inline uint4 load_vector(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}

// An element of a bias of any dtype, in f32.
__device__ inline float bias_at(const Bias& bias, int column) {
  if (bias.kind == kBf16) return __bfloat162float(static_cast<const Bfloat*>(bias.values)[column]);
  if (bias.kind == kF16) return __half2float(static_cast<const Half*>(bias.values)[column]);
  return static_cast<const float*>(bias.values)[column];
}

// Exchanges values among four neighbouring lanes with four values each: afterwards lane q has the
// q-th value of all four.
template <class T>
__device__ void exchange_among_four(T (&v)[4]) {
  const bool odd = threadIdx.x & 1;
  T a = odd ? v[0] : v[1];
  T b = odd ? v[2] : v[3];
  a = __shfl_xor_sync(0xffffffff, a, 1);
  b = __shfl_xor_sync(0xffffffff, b, 1);
  (odd ? v[0] : v[1]) = a;
  (odd ? v[2] : v[3]) = b;
  const bool high = threadIdx.x & 2;
  a = high ? v[0] : v[2];
  b = high ? v[1] : v[3];
  a = __shfl_xor_sync(0xffffffff, a, 2);
  b = __shfl_xor_sync(0xffffffff, b, 2);
  (high ? v[0] : v[2]) = a;
  (high ? v[1] : v[3]) = b;
}

// Eight neighbouring elements of a row, as the matrix keeps them.
template <class Out>
struct EightOf {
  static constexpr int kVectors = sizeof(Out) * 8 / 16;
  uint4 vectors[kVectors];
};

template <class Out>
__device__ void store_eight(const Rows& rows, const EightOf<Out>& eight, int row, int column) {
  Out* at = reinterpret_cast<Out*>(rows.data + row * rows.stride) + column;
  if (rows.aligned && column + 8 <= rows.n) {
#pragma unroll
    for (int v = 0; v < EightOf<Out>::kVectors; ++v)
      reinterpret_cast<uint4*>(at)[v] = eight.vectors[v];
    return;
  }
  const Out* elements = reinterpret_cast<const Out*>(eight.vectors);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (column + e < rows.n) at[e] = elements[e];
  }
}

// A lane has two elements of each of four column blocks from `first_column` on: values[2 * w + c].
// Adds the bias, rounds to Out, and gives each of four lanes the eight elements of one block.
template <class Out>
__device__ EightOf<Out> finished_eight(const float (&values)[8], const Bias& bias, int n,
                                       int first_column) {
  float sums[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    sums[e] = values[e];
    const int column = first_column + e / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + e % 2;
    if (bias.values != nullptr && column < n) sums[e] = bias_at(bias, column) + sums[e];
  }
  EightOf<Out> eight;
  if constexpr (sizeof(Out) == 4) {
    unsigned long long pairs[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      pairs[w] = static_cast<unsigned long long>(__float_as_uint(sums[2 * w + 1])) << 32 |
                 __float_as_uint(sums[2 * w]);
    }
    exchange_among_four(pairs);
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      eight.vectors[v] = make_uint4(static_cast<unsigned int>(pairs[2 * v]),
                                    static_cast<unsigned int>(pairs[2 * v] >> 32),
                                    static_cast<unsigned int>(pairs[2 * v + 1]),
                                    static_cast<unsigned int>(pairs[2 * v + 1] >> 32));
    }
  } else {
    unsigned int pairs[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) pairs[w] = pack_two<Out>(sums[2 * w], sums[2 * w + 1]);
    exchange_among_four(pairs);
    eight.vectors[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
  return eight;
}

// Gives each thread of a tile eight finished elements of a row at a time: store(eight, row,
// column). All lanes of a warp call it, and `store` decides which rows count.
template <class Out, class Tile, class Store>
__device__ void for_each_eight(Tile& tile, const Bias& bias, int n, Store&& store) {
  const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int u = 0; u < Tile::kColumnBlocks / 4; ++u) {
    const int first_column = tile.first_column + 32 * u;
#pragma unroll
    for (int i = 0; i < Tile::kRowBlocks; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float values[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = tile.value(i, r, 4 * u + e / 2, e % 2);
        store(finished_eight<Out>(values, bias, n, first_column), tile.row(i, r),
              first_column + 8 * quarter);
      }
    }
    asm volatile("" ::: "memory");  // keeps loads of the next columns' bias below
  }
}

// Puts the rows of a tile, finished and rounded to Out, into shared memory, `stride` bytes apart.
template <class Out, class Tile>
__device__ void stage_rows(Tile& tile, const Bias& bias, int n, char* staged, int stride) {
  static_assert(sizeof(Out) == 2 && Tile::kRowBlocks == 1);
  const int lane = tile.thread % 32;
  const auto value = [&](int r, int j) {
    float two[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      two[c] = tile.value(0, r, j, c);
      const int column = tile.column(j) + c;
      if (bias.values != nullptr && column < n) two[c] = bias_at(bias, column) + two[c];
    }
    return pack_two<Out>(two[0], two[1]);
  };
  // Each lane gives the address of one row of the four blocks of 8 by 8 that a warp stores at once:
  // upper and lower rows of one column block, then of the next.
  const int row = tile.thread / 32 * 16 + lane % 16;
  const auto at =
      static_cast<unsigned int>(__cvta_generic_to_shared(staged + row * stride + lane / 16 * 16));
#pragma unroll
  for (int j = 0; j < Tile::kColumnBlocks; j += 2) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     at + static_cast<unsigned int>(j) * 16),
                 "r"(value(0, j)), "r"(value(1, j)), "r"(value(0, j + 1)), "r"(value(1, j + 1))
                 : "memory");
  }
}

}  // namespace plait::overlap::cuda
