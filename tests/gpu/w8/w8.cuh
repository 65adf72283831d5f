// The product of 16-bit rows and a packed 8-bit weight on a Hopper GPU: W8A16.
//
// The kernel computes the transposed product: features are wgmma's rows, tokens its columns, so
// that weights can be its operand in registers, where they become 16-bit floats. A producer thread
// keeps a ring of stages in shared memory full; each consumer warpgroup turns the bytes of its
// features into whole numbers for one step while the tensor cores multiply the step before.
//
// Numerics: value + offset is exact in bf16 and f16. Per tensor and per channel, one f32 chain over
// k, then one multiplication by the scale. Grouped, a chain over each group, and
// sum = fma(scale, chain, sum), groups in ascending order. None of this depends on the number of
// tokens or on the tile, so every Config of a group size gives the same bits.
//
// Two functors decide the rest:
//
//   struct Order {
//     __device__ int tiles() const;
//     __device__ W8Tile at(int place) const;
//     __device__ void before_load(W8Tile) const;   // by the producer thread, before it reads X
//   };
//   struct Finish {
//     // By all threads of a warpgroup, for each of its blocks of a tile.
//     template <int count> __device__ void operator()(const W8Place&, float (&sums)[count]) const;
//   };
#pragma once

#include "gpu/w8/w8_config.cuh"
#include "gpu/w8/w8_convert.cuh"
#include "gpu/w8/w8_layout.h"
#include "gpu/w8/w8_ptx.cuh"
#include "gpu/w8/w8_ring.cuh"

namespace plait::gpu::w8 {

// In units of a tile.
struct W8Tile {
  int features, tokens;
};

// The sums that a thread has: sums[4 j + 2 h + i] is that of feature + 2 h and token + 8 j + i.
struct W8Place {
  int feature;
  int token;
};

struct W8Weights {
  const unsigned char* records;
  const float2* scales;          // a pair for each pair of rows, unless grouped
  const std::uint16_t* offsets;  // likewise, s8
  int blocks;
  int chunks;
};

template <class C, class Order>
class Producer {
 public:
  __device__ Producer(Ring<C> ring, const CUtensorMap& map, const W8Weights& weights)
      : ring_(ring), map_(map), weights_(weights) {}

  __device__ void run(const Order& order) {
    const int tiles = order.tiles();
    for (int place = blockIdx.x; place < tiles; place += gridDim.x) {
      const W8Tile tile = order.at(place);
      order.before_load(tile);
      for (int chunk = 0; chunk < weights_.chunks; chunk += C::kStageChunks) load(tile, chunk);
    }
  }

 private:
  Ring<C> ring_;
  const CUtensorMap& map_;
  const W8Weights& weights_;
  Cursor<C> cursor_;

  __device__ void load(W8Tile tile, int chunk) {
    const int stage = cursor_.stage;
    // The first trip finds all stages empty: the phase "before" the first counts as over.
    ring_.empty(stage).wait(cursor_.parity ^ 1);
    const int first = tile.features * C::kTileBlocks;
    const int blocks = min(C::kTileBlocks, weights_.blocks - first);
    Barrier full = ring_.full(stage);
    full.arrive_expecting(C::kRowsBytes + blocks * C::kBlockBytes);
    const std::uint32_t weights = ring_.weights() + stage * C::kWeightBytes;
    const Keep keep = weights_used_once() ? Keep::briefly : Keep::normal;
    for (int i = 0; i < blocks; ++i) {
      const std::size_t record = static_cast<std::size_t>(first + i) * weights_.chunks + chunk;
      copy_bytes(weights + i * C::kBlockBytes, weights_.records + record * C::kRecord,
                 C::kBlockBytes, full, keep);
    }
    const std::uint32_t rows = ring_.rows + stage * C::kRowsBytes;
#pragma unroll
    for (int i = 0; i < C::kStageChunks; ++i) {
      copy_box(rows + i * C::kBoxBytes, map_, (chunk + i) * kChunk, tile.tokens * C::kTokens, full,
               Keep::long_);
    }
    cursor_ = cursor_.further(1);
  }

  // With few tokens, no other tile reads the weights again.
  __device__ static constexpr bool weights_used_once() { return C::kTileBlocks == 1; }
};

// One thread of a consumer warpgroup.
template <class C>
class Consumer {
 public:
  using In = typename C::In;

  __device__ Consumer(Ring<C> ring, const W8Weights& weights)
      : ring_(ring),
        weights_(weights),
        warpgroup_(threadIdx.x / kWarpgroup),
        thread_(threadIdx.x % kWarpgroup) {}

  template <class Order, class Finish>
  __device__ __forceinline__ void run(const Order& order, const Finish& finish) {
    const int tiles = order.tiles();
    for (int place = blockIdx.x; place < tiles; place += gridDim.x) {
      const W8Tile tile = order.at(place);
      begin(tile);
      const int rounds = weights_.chunks * kChunk / C::kRoundK;
      for (int round = 0; round < rounds; ++round) {
        walk(round > 0, round + 1 < rounds, std::make_integer_sequence<int, C::kSteps>{});
        cursor_ = cursor_.further(C::kRoundStages);
      }
      end(tile, finish);
    }
  }

 private:
  Ring<C> ring_;
  const W8Weights& weights_;
  Cursor<C> cursor_;  // of the round's first stage
  int warpgroup_;
  int thread_;
  std::uint32_t bytes_[C::kStepK / 8];           // of the step after the next
  std::uint32_t operands_[2][C::kStepK / 4];     // of the running step and the next
  Pairs offsets_[C::kGrouped ? 1 : C::kBlocks];  // those of the tile, unless grouped
  float sums_[C::kBlocks][C::kSums];
  float chain_[C::kGrouped ? C::kSums : 1];

  __device__ int row_pair() const { return thread_ / 32 * 8 + thread_ % 32 / 4; }

  __device__ int block_of(W8Tile tile, int block) const {
    return tile.features * C::kTileBlocks + warpgroup_ * C::kBlocks + block;
  }

  __device__ __forceinline__ void begin(W8Tile tile) {
#pragma unroll
    for (auto& block : sums_) {
#pragma unroll
      for (float& sum : block) sum = 0;
    }
    if constexpr (!C::kGrouped) {
#pragma unroll
      for (int block = 0; block < C::kBlocks; ++block) {
        const int at = min(block_of(tile, block), weights_.blocks - 1) * kRowPairs + row_pair();
        offsets_[block] = offset_pairs<In>(weights_.offsets[at]);
      }
    }
    fetch<0>(true);
    convert<0>();
    fetch<1>(true);
  }

  template <int... s>
  __device__ __forceinline__ void walk(bool add, bool more, std::integer_sequence<int, s...>) {
    (step<s>(add, more), ...);
  }

  // Starts the products of step s, and meanwhile prepares step s + 1. `add`: the tile has had
  // rounds before; `more`: it has rounds after this.
  template <int s>
  __device__ __forceinline__ void step(bool add, bool more) {
    using S = Step<C, s>;
    start<s>(add);
    wait_products<1>();  // the step before is finished
    pin(operands_[1 - S::kOperand]);
    if constexpr (s == 0) {
      if (add) release<-1>();
    } else {
      release<s - 1>();
    }
    convert<s + 1>();
    fetch<s + 2>(s + 2 < C::kSteps || more);
    if constexpr (C::kGrouped && S::kEndsSpan) add_chain<s>();
  }

  template <int s>
  __device__ __forceinline__ void start(bool add) {
    using S = Step<C, s>;
    const std::uint32_t rows = ring_.rows + cursor_.further(S::kStage).stage * C::kRowsBytes +
                               S::kStagePlace / kChunk * C::kBoxBytes;
    const std::uint64_t from = swizzled_rows(rows) + S::kStagePlace % kChunk / 16 * kNextStep;
    float(&sums)[C::kSums] = target<S::kBlock>();
    before_products();
#pragma unroll
    for (int i = 0; i < C::kStepK / 16; ++i) {
      const bool first = i == 0 && (C::kGrouped ? S::kPlace == 0 : S::kRoundPlace == 0);
      multiply<In>(sums, operands_[S::kOperand] + 4 * i, from + i * kNextStep,
                   !first || (!C::kGrouped && add));
    }
    commit_products();
  }

  template <int block>
  __device__ __forceinline__ float (&target())[C::kSums] {
    if constexpr (C::kGrouped) {
      return chain_;
    } else {
      return sums_[block];
    }
  }

  // Gives the stage of step s back to the producer, if the step was the last to need it.
  template <int s>
  __device__ __forceinline__ void release() {
    using S = Step < C, s<0 ? s + C::kSteps : s>;
    if constexpr (S::kClosesStage) {
      constexpr int kStage = S::kStage - (s < 0 ? C::kRoundStages : 0);
      const int stage = kStage < 0 ? (cursor_.stage == 0 ? C::kStages : cursor_.stage) + kStage
                                   : cursor_.further(kStage).stage;
      if (thread_ % 32 == 0) ring_.empty(stage).arrive();
    }
  }

  template <class S>
  __device__ __forceinline__ std::uint32_t record() const {
    return ring_.weights() + cursor_.further(S::kStage).stage * C::kWeightBytes +
           (warpgroup_ * C::kBlocks + S::kBlock) * C::kBlockBytes +
           S::kStagePlace / kChunk * C::kRecord;
  }

  // Scales and offsets of the group of step S.
  template <class S>
  __device__ __forceinline__ std::uint32_t group() const {
    constexpr int kPlace = C::kGroup < kChunk ? S::kStagePlace % kChunk / 32 : 0;
    return record<S>() + kChunkBytes + kPlace * kGroupBytes;
  }

  // Loads the weights of step s.
  template <int s>
  __device__ __forceinline__ void fetch(bool exists) {
    using S = Step<C, s>;
    if (!exists) return;
    if constexpr (S::kOpensStage) {
      const Cursor<C> at = cursor_.further(S::kStage);
      ring_.full(at.stage).wait(at.parity);
    }
    const std::uint32_t from =
        record<S>() + S::kStagePlace % kChunk / 32 * kHalfBytes + thread_ * 16;
#pragma unroll
    for (int i = 0; i < C::kStepK / 32; ++i) {
      const uint4 words = load_16(from + i * kHalfBytes);
      bytes_[4 * i] = words.x;
      bytes_[4 * i + 1] = words.y;
      bytes_[4 * i + 2] = words.z;
      bytes_[4 * i + 3] = words.w;
    }
    if constexpr (C::kGrouped) {
      offsets_[0] = {load_2(group<S>() + kScaleBytes + row_pair() * 2), 0};
    }
  }

  // Makes operands of the bytes that fetch() loaded.
  template <int s>
  __device__ __forceinline__ void convert() {
    using S = Step<C, s>;
    const Pairs offset =
        C::kGrouped ? offset_pairs<In>(offsets_[0].first) : offsets_[C::kGrouped ? 0 : S::kBlock];
    std::uint32_t(&operands)[C::kStepK / 4] = operands_[S::kOperand];
#pragma unroll
    for (int i = 0; i < C::kStepK / 8; ++i) {
      const Pairs pairs = whole_numbers<In>(bytes_[i], offset);
      operands[2 * i] = pairs.first;
      operands[2 * i + 1] = pairs.second;
    }
    pin(operands);  // here, while products run, and not where the operands are used
  }

  // Ends a group: sums += scale * chain.
  template <int s>
  __device__ __forceinline__ void add_chain() {
    using S = Step<C, s>;
    const float2 scale = load_floats(group<S>() + row_pair() * 8);
    wait_products<0>();
    pin(chain_);
    float(&sums)[C::kSums] = sums_[S::kBlock];
    add_chain(scale, sums, std::make_integer_sequence<int, C::kSums>{});
  }

  // Constant indices: loops over this many sums can end up in local memory.
  template <int... i>
  __device__ __forceinline__ void add_chain(float2 scale, float (&sums)[C::kSums],
                                            std::integer_sequence<int, i...>) {
    ((sums[i] = __fmaf_rn(i % 4 < 2 ? scale.x : scale.y, chain_[i], sums[i])), ...);
  }

  template <class Finish>
  __device__ __forceinline__ void end(W8Tile tile, const Finish& finish) {
    wait_products<0>();
    release<-1>();
#pragma unroll
    for (int block = 0; block < C::kBlocks; ++block) {
      const int number = block_of(tile, block);
      pin(sums_[block]);
      if constexpr (!C::kGrouped) scale(block, min(number, weights_.blocks - 1));
      const int feature =
          number * kBlockFeatures + thread_ / 32 * 16 + feature_of_row(thread_ % 32 / 4);
      finish(W8Place{feature, tile.tokens * C::kTokens + thread_ % 4 * 2}, sums_[block]);
    }
  }

  __device__ __forceinline__ void scale(int block, int number) {
    const float2 scale = weights_.scales[number * kRowPairs + row_pair()];
#pragma unroll
    for (int i = 0; i < C::kSums; i += 4) {
      sums_[block][i] = __fmul_rn(scale.x, sums_[block][i]);
      sums_[block][i + 1] = __fmul_rn(scale.x, sums_[block][i + 1]);
      sums_[block][i + 2] = __fmul_rn(scale.y, sums_[block][i + 2]);
      sums_[block][i + 3] = __fmul_rn(scale.y, sums_[block][i + 3]);
    }
  }
};

template <int count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <class C, class Order, class Finish>
__global__ void __launch_bounds__(C::kThreads, C::kPerSm)
    multiply_w8(const __grid_constant__ CUtensorMap map, const __grid_constant__ W8Weights weights,
                const __grid_constant__ Order order, const __grid_constant__ Finish finish) {
  extern __shared__ unsigned char memory[];
  const Ring<C> ring(memory);
  if (threadIdx.x == 0) {
    prefetch_map(map);
    for (int i = 0; i < C::kStages; ++i) {
      ring.full(i).init(1);
      ring.empty(i).init(C::kWarpgroups * kWarpgroup / 32);  // a thread of each warp
    }
    make_barriers_visible();
  }
  __syncthreads();
  if (threadIdx.x >= C::kWarpgroups * kWarpgroup) {
    if constexpr (C::kMovesRegisters) give_registers<24>();
    if (threadIdx.x == C::kWarpgroups * kWarpgroup) {
      Producer<C, Order>(ring, map, weights).run(order);
    }
    return;
  }
  if constexpr (C::kMovesRegisters) take_registers<240>();
  Consumer<C>(ring, weights).run(order, finish);
}

}  // namespace plait::gpu::w8
