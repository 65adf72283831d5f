// The ring of stages in shared memory, between a W8A16 kernel's producer and its consumers.
//
// A stage has rows of X and weights. Its barrier `full` is complete when both have arrived, and
// `empty` when every consumer warp has arrived there.
#pragma once

#include <cstdint>

#include "gpu/w8/w8_config.cuh"
#include "gpu/w8/w8_ptx.cuh"

namespace plait::gpu::w8 {

// The ring of stages in shared memory.
template <class C>
struct Ring {
  std::uint32_t rows;  // addresses in shared memory; rows: a multiple of 1024

  __device__ explicit Ring(const unsigned char* memory)
      : rows((shared_address(memory) + 1023) / 1024 * 1024) {}

  __device__ std::uint32_t weights() const { return rows + C::kStages * C::kRowsBytes; }
  __device__ Barrier full(int stage) const {
    return {weights() + C::kStages * C::kWeightBytes + stage * kBarrierBytes};
  }
  __device__ Barrier empty(int stage) const { return full(C::kStages + stage); }
};

// A position in the ring, and the parity of its round trip.
template <class C>
struct Cursor {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ Cursor further(int stages) const {
    Cursor result = *this;
    result.stage += stages;
    if (result.stage >= C::kStages) {
      result.stage -= C::kStages;
      result.parity ^= 1;
    }
    return result;
  }
};

}  // namespace plait::gpu::w8
