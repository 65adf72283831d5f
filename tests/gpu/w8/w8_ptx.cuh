// Instructions of a Hopper GPU that C++ does not have: barriers in shared memory, copies
// that report to them, and products of a warpgroup whose left operand is in registers.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <utility>

namespace plait::gpu::w8 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// How long the L2 cache keeps bytes, in comparison with others.
enum class Keep : std::uint64_t {
  normal = 0x1000000000000000,
  briefly = 0x12F0000000000000,
  long_ = 0x14F0000000000000,
};

inline constexpr int kBarrierBytes = 8;

// A barrier in shared memory, by its address. Phases are numbered by their parity.
struct Barrier {
  std::uint32_t address;

  __device__ void init(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals)
                 : "memory");
  }

  // Memory ordering: what this thread did before is seen by threads after their wait().
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }

  // Arrives, and adds `bytes` that copies will report before the phase ends.
  __device__ void arrive_expecting(std::uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(address),
        "r"(bytes)
        : "memory");
  }

  __device__ bool passed(std::uint32_t parity) {
    std::uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
    return done != 0;
  }

  // Waits until the phase of this parity is over. A wait of several seconds is a fault of the
  // kernel: it ends the kernel with an error instead of occupying the GPU for ever.
  __device__ void wait(std::uint32_t parity) {
    for (int polls = 0; !passed(parity);) {
      if (++polls == 1 << 26) __trap();
    }
  }
};

__device__ inline void make_barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies contiguous bytes: a multiple of 16, both addresses aligned to 16.
__device__ inline void copy_bytes(std::uint32_t to, const void* from, std::uint32_t bytes,
                                  Barrier done, Keep keep) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(done.address),
      "l"(static_cast<std::uint64_t>(keep))
      : "memory");
}

// Copies the box of `map` that begins at (column, row); what lies outside the matrix reads as 0.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, int column, int row,
                                Barrier done, Keep keep) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(done.address), "l"(static_cast<std::uint64_t>(keep))
      : "memory");
}

// Loads from shared memory. They stay where they are written, between the waits around them.
__device__ inline uint4 load_16(std::uint32_t from) {
  uint4 result;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(result.x), "=r"(result.y), "=r"(result.z), "=r"(result.w)
               : "r"(from)
               : "memory");
  return result;
}
__device__ inline float2 load_floats(std::uint32_t from) {
  float2 result;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(result.x), "=f"(result.y)
               : "r"(from)
               : "memory");
  return result;
}
__device__ inline std::uint32_t load_2(std::uint32_t from) {
  std::uint16_t result;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(result) : "r"(from) : "memory");
  return result;
}

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A matrix in shared memory, as wgmma is told of it: rows of 128 bytes, swizzled by TMA's
// 128-byte pattern, whose period is 8 rows. The address of the first row is a multiple of 1024.
// Bits 0..13 are the address, 16..29 the (unused) leading stride, 32..45 the bytes from 8 rows to
// the next 8, all in units of 16; bits 62..63 name the swizzle.
__device__ inline std::uint64_t swizzled_rows(std::uint32_t rows) {
  constexpr std::uint64_t kFixed =
      (std::uint64_t{1} << 16) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
  return kFixed | (rows >> 4);
}

// Steps of 16 values along a row: 32 bytes.
constexpr std::uint64_t kNextStep = 32 >> 4;

template <class In, int tokens>
struct RegisterMma;

#define PLAIT_W8_MMA(In, tokens, name)                                                           \
  template <>                                                                                    \
  struct RegisterMma<In, tokens> {                                                               \
    using Type = cute::SM90::GMMA::name<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>; \
  }
PLAIT_W8_MMA(__nv_bfloat16, 8, MMA_64x8x16_F32BF16BF16_RS);
PLAIT_W8_MMA(__nv_bfloat16, 16, MMA_64x16x16_F32BF16BF16_RS);
PLAIT_W8_MMA(__nv_bfloat16, 32, MMA_64x32x16_F32BF16BF16_RS);
PLAIT_W8_MMA(__nv_bfloat16, 64, MMA_64x64x16_F32BF16BF16_RS);
PLAIT_W8_MMA(__nv_bfloat16, 128, MMA_64x128x16_F32BF16BF16_RS);
PLAIT_W8_MMA(__half, 8, MMA_64x8x16_F32F16F16_RS);
PLAIT_W8_MMA(__half, 16, MMA_64x16x16_F32F16F16_RS);
PLAIT_W8_MMA(__half, 32, MMA_64x32x16_F32F16F16_RS);
PLAIT_W8_MMA(__half, 64, MMA_64x64x16_F32F16F16_RS);
PLAIT_W8_MMA(__half, 128, MMA_64x128x16_F32F16F16_RS);
#undef PLAIT_W8_MMA

// sums += a · rows, or = where `add` is false. Asynchronous: see wgmma's rules for registers.
template <class In, int count, int... i>
__device__ inline void multiply(float (&sums)[count], const std::uint32_t* a, std::uint64_t rows,
                                bool add, std::integer_sequence<int, i...>) {
  RegisterMma<In, count * 2>::Type::fma(
      a[0], a[1], a[2], a[3], rows, sums[i]...,
      add ? cute::SM90::GMMA::ScaleOut::One : cute::SM90::GMMA::ScaleOut::Zero);
}

template <class In, int count>
__device__ inline void multiply(float (&sums)[count], const std::uint32_t* a, std::uint64_t rows,
                                bool add) {
  multiply<In>(sums, a, rows, add, std::make_integer_sequence<int, count>{});
}

__device__ inline void before_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `running` of the committed groups are not finished.
template <int running>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(running) : "memory");
}

// Keeps the compiler from moving uses of registers across, or reusing them before.
template <int count, int... i>
__device__ __forceinline__ void pin(std::uint32_t (&r)[count], std::integer_sequence<int, i...>) {
  ([&] { asm volatile("" : "+r"(r[i])::"memory"); }(), ...);
}
template <int count, int... i>
__device__ __forceinline__ void pin(float (&r)[count], std::integer_sequence<int, i...>) {
  ([&] { asm volatile("" : "+f"(r[i])::"memory"); }(), ...);
}
template <class T, int count>
__device__ __forceinline__ void pin(T (&registers)[count]) {
  pin(registers, std::make_integer_sequence<int, count>{});
}

}  // namespace plait::gpu::w8
