// Chooses the tile of a product by an 8-bit weight, describes X to the hardware, starts the kernel.
#include "gpu/w8/w8.h"

#include "gpu/w8/w8_tiles.cuh"

namespace plait::gpu {
namespace {

using namespace w8;

struct TileShape {
  const char* name;
  int features, tokens;
  int per_processor;
};

// In the order of w8_tiles.cuh.
constexpr TileShape kShapes[] = {
    {"64x8", 64, 8, 2},       {"64x16", 64, 16, 2},   {"64x32", 64, 32, 2},
    {"64x64", 64, 64, 2},     {"64x128", 64, 128, 1}, {"128x128", 128, 128, 1},
    {"256x128", 256, 128, 1},
};
static_assert(sizeof(kShapes) / sizeof(kShapes[0]) == kTiles);

constexpr std::int64_t tiles_of(std::int64_t size, int tile) { return (size + tile - 1) / tile; }

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's function, found through the runtime: nothing links the driver.
EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
    const bool good = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return good ? reinterpret_cast<EncodeTiled>(function) : nullptr;
  }();
  return found;
}

std::int64_t x_stride(const W8Call& call, const W8Weight& weight) {
  return call.x_stride != 0 ? call.x_stride : weight.k;
}

std::int64_t out_stride(const W8Call& call, const W8Weight& weight) {
  return call.out_stride != 0 ? call.out_stride : weight.n;
}

cudaError_t describe_rows(const W8Call& call, const W8Weight& weight, int tokens,
                          CUtensorMap& map) {
  const EncodeTiled encode = encode_tiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto type =
      call.in == Dtype::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(weight.k), static_cast<cuuint64_t>(call.m)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(x_stride(call, weight)) * 2};
  const cuuint32_t box[] = {kChunk, static_cast<cuuint32_t>(tokens)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result =
      encode(&map, type, 2, const_cast<void*>(call.x), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

W8Weights device_weight(const W8Weight& weight) {
  const Memory memory(weight);
  const auto* records = static_cast<const unsigned char*>(weight.memory);
  return {
      .records = records,
      .scales = reinterpret_cast<const float2*>(records + memory.records),
      .offsets = reinterpret_cast<const std::uint16_t*>(records + memory.records + memory.scales),
      .blocks = static_cast<int>(blocks(weight.n)),
      .chunks = static_cast<int>(padded_chunks(weight.k, weight.group))};
}

StoreRows store_rows(const W8Call& call, const W8Weight& weight) {
  const std::int64_t stride = out_stride(call, weight);
  const std::uintptr_t vector = 4 * size_of(call.out_dtype);
  return {
      .out = call.out,
      .stride = stride,
      .bias = call.bias,
      .m = static_cast<int>(call.m),
      .n = static_cast<int>(weight.n),
      .dtype = call.out_dtype,
      .whole_vectors = stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(call.out) % vector == 0};
}

int processors() {
  int device = 0;
  int count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}

// Time of a product in arbitrary units: waves of tiles, each as long as its work. A smaller tile
// does a unit of work in more time, since it loads more for it.
double cost(int tile, std::int64_t m, std::int64_t n, int processors) {
  const TileShape& shape = kShapes[tile];
  const std::int64_t tiles = tiles_of(n, shape.features) * tiles_of(m, shape.tokens);
  const std::int64_t waves = tiles_of(tiles, processors);
  constexpr double kSlower[kTiles] = {1, 1, 1, 1, 1.5, 1.15, 1};
  return static_cast<double>(waves * shape.features * shape.tokens) * kSlower[tile];
}

}  // namespace

const char* w8_refusal(const W8Call& call, const W8Weight& weight) {
  if (call.in != Dtype::bf16 && call.in != Dtype::f16) return "X is neither bf16 nor f16";
  if (call.out_dtype == Dtype::s8) return "the result cannot be s8";
  if (x_stride(call, weight) % 8 != 0) return "the rows of X are not a multiple of 16 bytes";
  if (reinterpret_cast<std::uintptr_t>(call.x) % 16 != 0) return "X is not aligned to 16 bytes";
  if (call.m > 1 << 24) return "X has too many rows";
  return nullptr;
}

int w8_tiles() { return kTiles; }
const char* w8_tile_name(int tile) { return kShapes[tile].name; }

int w8_best_tile(std::int64_t m, std::int64_t n, int processors) {
  // Up to 64 tokens, reading the weight is the work: all tokens in one tile, narrow in features.
  for (int tile = 0; tile < 4; ++tile) {
    if (m <= kShapes[tile].tokens) return tile;
  }
  int best = kTiles - 1;
  for (int tile = 4; tile < kTiles - 1; ++tile) {
    if (cost(tile, m, n, processors) < cost(best, m, n, processors)) best = tile;
  }
  return best;
}

cudaError_t multiply_w8(const W8Call& call, const W8Weight& weight, int tile, cudaStream_t stream) {
  if (call.m == 0) return cudaSuccess;
  Launch launch = {.map = {},
                   .weights = device_weight(weight),
                   .store = store_rows(call, weight),
                   .processors = processors()};
  const int chosen = tile >= 0 ? tile : w8_best_tile(call.m, weight.n, launch.processors);
  const cudaError_t error = describe_rows(call, weight, kShapes[chosen].tokens, launch.map);
  if (error != cudaSuccess) return error;
  if (call.in == Dtype::bf16) {
    return launch_tile<__nv_bfloat16>(chosen, weight.group, launch, stream);
  }
  return launch_tile<__half>(chosen, weight.group, launch, stream);
}

cudaError_t multiply_w8(const W8Call& call, const W8Weight& weight, cudaStream_t stream) {
  return multiply_w8(call, weight, -1, stream);
}

}  // namespace plait::gpu
