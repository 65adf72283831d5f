// Copies of parts of a matrix and of slots, by a warp or by a block.
#pragma once

#include "overlap/cuda/args.h"
#include "overlap/cuda/fragments.cuh"

namespace plait::overlap::cuda {

struct Rectangle {
  int first_row;
  int end_row;
  int first_column;
  int columns;
};

// Called by a warp, for elements of `element` bytes. Rows of `source` begin at multiples of 16
// bytes.
__device__ inline void copy_rows(const Rows& source, const Rows& target, const Rectangle& part,
                                 int element, int lane) {
  const int per_vector = 16 / element;
  const int vectors = target.aligned ? part.columns / per_vector : 0;
  const long long first_byte = static_cast<long long>(part.first_column) * element;
#pragma unroll 8
  for (int v = lane; v < (part.end_row - part.first_row) * vectors; v += 32) {
    const int row = part.first_row + v / vectors;
    const long long at = first_byte + v % vectors * 16LL;
    *reinterpret_cast<uint4*>(target.data + row * target.stride + at) =
        load_vector(reinterpret_cast<const uint4*>(source.data + row * source.stride + at));
  }
  const int rest = part.columns - vectors * per_vector;
  for (int v = lane; v < (part.end_row - part.first_row) * rest; v += 32) {
    const int row = part.first_row + v / rest;
    const int at = part.first_column + vectors * per_vector + v % rest;
    const char* s = source.data + row * source.stride;
    char* d = target.data + row * target.stride;
    if (element == 4) {
      reinterpret_cast<float*>(d)[at] = reinterpret_cast<const volatile float*>(s)[at];
    } else {
      reinterpret_cast<short*>(d)[at] = reinterpret_cast<const volatile short*>(s)[at];
    }
  }
}

// Called by a block. Each thread's loads are under way before it stores.
__device__ inline void copy_vectors(const uint4* from, uint4* to, int count) {
  constexpr int kAtOnce = 8;
  const int threads = static_cast<int>(blockDim.x);
  for (int v = static_cast<int>(threadIdx.x); v < count; v += kAtOnce * threads) {
    uint4 vectors[kAtOnce];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      if (v + a * threads < count) vectors[a] = from[v + a * threads];
    }
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      if (v + a * threads < count) to[v + a * threads] = vectors[a];
    }
  }
}

}  // namespace plait::overlap::cuda
