// Products of 16-bit rows and an 8-bit weight on a Hopper GPU: W8A16.
//
//   W8Weight weight = {.n = n, .k = k, .group = 128};
//   weight.memory = ...;                          // w8_bytes(weight) on the device, 256-aligned
//   pack_w8({.values = q, .scales = s}, weight, stream);          // once
//   multiply_w8({.x = x, .m = m, .out = y}, weight, stream);      // y = x · w^T + bias
//
// w[j, k] = (value + offset) · scale. The sum over k depends on nothing but k and the group: the
// same bits for any number of rows. Nothing is allocated, nothing waits for the GPU, and all of it
// can be captured into a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "plait/dtype.h"

namespace plait::gpu {

// A packed weight on the device; the caller owns the memory.
struct W8Weight {
  std::int64_t n, k;
  int group = 0;  // 0: a scale per column (or one for all); else 32, 64, 128 or 256 k share one
  void* memory = nullptr;
};

// The parts that a weight is packed from, all on the device.
struct W8Parts {
  const std::int8_t* values;             // [n, k], rows without gaps
  const float* scales;                   // [1, n], or [ceil(k / group), n]
  const std::int8_t* offsets = nullptr;  // like scales, or null
};

struct W8Call {
  const void* x;  // [m, k], aligned to 16 bytes
  std::int64_t m;
  void* out;                      // [m, n], aligned to its elements
  std::int64_t x_stride = 0;      // elements from row to row, a multiple of 8; 0: k
  std::int64_t out_stride = 0;    // 0: n
  const float* bias = nullptr;    // [n]
  Dtype in = Dtype::bf16;         // or f16
  Dtype out_dtype = Dtype::bf16;  // or f16, f32
};

// Null if the weight or call can be served, otherwise the reason.
const char* w8_refusal(const W8Weight& weight);
const char* w8_refusal(const W8Call& call, const W8Weight& weight);

std::size_t w8_bytes(const W8Weight& weight);

// Both expect what w8_refusal() accepts, and start work on the stream.
cudaError_t pack_w8(const W8Parts& parts, const W8Weight& weight, cudaStream_t stream);
cudaError_t multiply_w8(const W8Call& call, const W8Weight& weight, cudaStream_t stream);

// The tiles that a product can be cut into, for measurements; they change no bit of the result.
// multiply_w8() takes the one that should be fastest. -1: let it choose.
int w8_tiles();
const char* w8_tile_name(int tile);
int w8_best_tile(std::int64_t m, std::int64_t n, int processors);
cudaError_t multiply_w8(const W8Call& call, const W8Weight& weight, int tile, cudaStream_t stream);

}  // namespace plait::gpu
