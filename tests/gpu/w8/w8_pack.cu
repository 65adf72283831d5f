// Brings an 8-bit weight into the order of w8_layout.h, once, on the device.
#include "gpu/w8/w8_memory.h"

namespace plait::gpu {
namespace {

using namespace w8;

constexpr int kPackThreads = 128;

struct Packing {
  W8Parts parts;
  std::int64_t n, k;
  int group;
  std::int64_t chunks;  // padded
  unsigned char* records;
  float* scales;         // unless grouped
  std::int8_t* offsets;  // unless grouped
};

__device__ std::int8_t value(const Packing& p, std::int64_t feature, std::int64_t k) {
  return feature < p.n && k < p.k ? p.parts.values[feature * p.k + k] : std::int8_t{0};
}

__device__ float scale(const Packing& p, std::int64_t group, std::int64_t feature) {
  return feature < p.n ? p.parts.scales[group * p.n + feature] : 0.0F;
}

__device__ std::int8_t offset(const Packing& p, std::int64_t group, std::int64_t feature) {
  const bool has = feature < p.n && p.parts.offsets != nullptr;
  return has ? p.parts.offsets[group * p.n + feature] : std::int8_t{0};
}

// Packs scales and offsets of a block in a group, a pair for each pair of rows, by the first 64
// threads.
__device__ void pack_group(const Packing& p, std::int64_t block, std::int64_t group, float* scales,
                           std::int8_t* offsets) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kBlockFeatures) return;
  const std::int64_t feature =
      block * kBlockFeatures + i / 16 * 16 + feature_of_row(i % 16 / 2) + i % 2 * 2;
  scales[i] = scale(p, group, feature);
  offsets[i] = offset(p, group, feature);
}

// Packs a thread's 16 bytes: for each of two operands of 16 k, words of k and k + 8. The bytes of a
// word are rows g and g + 8 at k, then at k + 1.
__device__ void pack_half(const Packing& p, std::int64_t block, std::int64_t first_k,
                          unsigned char* half) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::int64_t feature = block * kBlockFeatures + thread / 32 * 16 + feature_of_row(lane / 4);
  for (int i = 0; i < 16; ++i) {
    const std::int64_t k = first_k + i / 8 * 16 + i / 4 % 2 * 8 + lane % 4 * 2 + i / 2 % 2;
    half[thread * 16 + i] = static_cast<unsigned char>(value(p, feature + i % 2 * 2, k));
  }
}

__global__ void __launch_bounds__(kPackThreads) pack_chunk(const Packing p) {
  const std::int64_t block = blockIdx.y;
  const std::int64_t chunk = blockIdx.x;
  unsigned char* record = p.records + (block * p.chunks + chunk) * record_bytes(p.group);
  for (int half = 0; half < 2; ++half) {
    pack_half(p, block, chunk * kChunk + half * 32, record + half * kHalfBytes);
  }
  if (p.group == 0) {
    if (chunk == 0) {
      pack_group(p, block, 0, p.scales + block * kBlockFeatures,
                 p.offsets + block * kBlockFeatures);
    }
    return;
  }
  const std::int64_t last = (p.k + p.group - 1) / p.group - 1;  // padding takes the last group's
  for (int i = 0; i < groups_of_chunk(p.group); ++i) {
    unsigned char* to = record + kChunkBytes + i * kGroupBytes;
    const std::int64_t group = (chunk * kChunk + i * 32) / p.group;
    pack_group(p, block, group < last ? group : last, reinterpret_cast<float*>(to),
               reinterpret_cast<std::int8_t*>(to + kScaleBytes));
  }
}

}  // namespace

std::size_t w8_bytes(const W8Weight& weight) { return w8::Memory(weight).total(); }

const char* w8_refusal(const W8Weight& weight) {
  if (weight.n < 1 || weight.k < 1) return "the weight is empty";
  // Blocks are counted by the second dimension of a grid, and features and k by 32 bits.
  if (blocks(weight.n) > 65535 || weight.k > 1 << 30) return "the weight is too large";
  const int g = weight.group;
  if (g != 0 && g != 32 && g != 64 && g != 128 && g != 256) {
    return "groups of 8-bit weights have 32, 64, 128 or 256 values";
  }
  return nullptr;
}

cudaError_t pack_w8(const W8Parts& parts, const W8Weight& weight, cudaStream_t stream) {
  const Memory memory(weight);
  auto* records = static_cast<unsigned char*>(weight.memory);
  const Packing packing = {
      .parts = parts,
      .n = weight.n,
      .k = weight.k,
      .group = weight.group,
      .chunks = padded_chunks(weight.k, weight.group),
      .records = records,
      .scales = reinterpret_cast<float*>(records + memory.records),
      .offsets = reinterpret_cast<std::int8_t*>(records + memory.records + memory.scales)};
  const dim3 grid(static_cast<unsigned>(packing.chunks), static_cast<unsigned>(blocks(weight.n)));
  pack_chunk<<<grid, kPackThreads, 0, stream>>>(packing);
  return cudaGetLastError();
}

}  // namespace plait::gpu
