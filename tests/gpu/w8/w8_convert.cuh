// Converts the four 8-bit weights of a word to two pairs of 16-bit floats, exactly.
//
// Bytes 0 and 2 become the first pair, bytes 1 and 3 the second.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace plait::gpu::w8 {

struct Pairs {
  std::uint32_t first, second;
};

// a - b and a + b of two pairs of floats.
template <class In>
__device__ std::uint32_t difference(std::uint32_t a, std::uint32_t b);
template <class In>
__device__ std::uint32_t sum(std::uint32_t a, std::uint32_t b);

template <>
__device__ inline std::uint32_t difference<__nv_bfloat16>(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
template <>
__device__ inline std::uint32_t sum<__nv_bfloat16>(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
template <>
__device__ inline std::uint32_t difference<__half>(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
template <>
__device__ inline std::uint32_t sum<__half>(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// Bytes 0 and 2 of a word.
//
// bf16 has 8 bits of precision: 0x4300 | m is 128 + m for m < 128. With the sign bit s of a byte
// that is m - 128 s, 0x4300 | s << 7 is 128 + 128 s, and the difference of the two is the byte.
// f16 has 11: 0x6400 | u is 1024 + u for u < 1024; flipping the sign bit makes u = byte + 128.
template <class In>
__device__ std::uint32_t even_bytes(std::uint32_t word);

template <>
__device__ inline std::uint32_t even_bytes<__nv_bfloat16>(std::uint32_t word) {
  const std::uint32_t low = (word & 0x007F007F) | 0x43004300;
  const std::uint32_t sign = (word & 0x00800080) | 0x43004300;
  return difference<__nv_bfloat16>(low, sign);
}

template <>
__device__ inline std::uint32_t even_bytes<__half>(std::uint32_t word) {
  const std::uint32_t biased = (word & 0x00FF00FF) ^ 0x64806480;
  return difference<__half>(biased, 0x64806480);  // 1024 + 128
}

template <class In>
__device__ inline Pairs whole_numbers(std::uint32_t word) {
  return {even_bytes<In>(word), even_bytes<In>(word >> 8)};
}

// Adds an offset. The result is at most 256 in magnitude, which bf16 and f16 represent exactly.
template <class In>
__device__ inline Pairs whole_numbers(std::uint32_t word, Pairs offset) {
  const Pairs values = whole_numbers<In>(word);
  return {sum<In>(values.first, offset.first), sum<In>(values.second, offset.second)};
}

// Offsets of two rows, a byte each, as the pairs that whole_numbers() adds.
template <class In>
__device__ inline Pairs offset_pairs(std::uint32_t two_bytes) {
  return whole_numbers<In>(__byte_perm(two_bytes, 0, 0x1010));
}

}  // namespace plait::gpu::w8
