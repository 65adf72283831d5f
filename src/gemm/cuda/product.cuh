// A product of 16-bit matrices on a Hopper GPU, in one persistent kernel.
//
// Each block has three warpgroups. One thread of the first loads tiles of X and W into shared
// memory (TMA), the other two multiply them (wgmma) and finish the tiles. A second warp of the
// first warpgroup publishes finished tiles, so that warps that multiply need not wait until their
// stores can be seen. The last two are free for the hooks' other work.
//
// Hooks decide the order of the tiles, what is waited for, and what becomes of a finished tile:
//
//   struct Hooks {
//     struct Args;                               // passed to the kernel by value
//     __device__ explicit Hooks(const Args&);
//     __device__ int tiles() const;              // of a cluster's size
//     __device__ TileAt at(int place) const;     // unit: as many rows as a cluster has
//     __device__ int matrix(int row) const;      // which X has the tile's rows
//     __device__ void before_load(int row, int lane);     // by a whole warp
//     template <class Tile> __device__ void finish(Tile& tile);  // by all threads of the tile
//     static constexpr bool kPublishes;
//     __device__ void publish(int row, int column, int lane);  // by a warp, once all have finished
//     __device__ void help(int warp, int lane);  // by each free warp, and by the others at the end
//   };
//
// The sum over k is one chain of f32 additions per element, in steps of 16 values, in an order that
// depends on nothing but k.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/pipeline/pipeline.hpp>

namespace plait::gemm::cuda {

inline constexpr int kWarpgroup = 128;
inline constexpr int kThreads = 3 * kWarpgroup;
inline constexpr int kHelpers = 2;      // warps
inline constexpr int kUnpublished = 4;  // tiles of a block, at most
inline constexpr int kClusterBlocks = 2;

// Layout tags of W.
struct OutIn {
  using Cutlass = cutlass::layout::ColumnMajor;
};
struct InOut {
  using Cutlass = cutlass::layout::RowMajor;
};

template <class Element_, class Layout_>
struct ProductShape {
  using Element = Element_;
  using Layout = Layout_;
  // CUDA's own type for these elements, which are CUTLASS's.
  using Narrow =
      std::conditional_t<std::is_same_v<Element, cutlass::half_t>, __half, __nv_bfloat16>;
  static constexpr int kRows = 128;
  static constexpr int kColumns = 256;
  static constexpr int kDepth = 64;
  static constexpr int kStages = 4;
  static constexpr int kTileThreads = 2 * kWarpgroup;
  static constexpr int kUnitRows = kRows * kClusterBlocks;

  using TileShape = cute::Shape<cute::Int<kRows>, cute::Int<kColumns>, cute::Int<kDepth>>;
  using Cluster = cute::Shape<cute::Int<kClusterBlocks>, cute::_1, cute::_1>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, 8,
      Element, typename Layout::Cutlass, 8, float, TileShape, Cluster,
      cutlass::gemm::collective::StageCount<kStages>,
      cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
  using Params = typename Mainloop::Params;

  struct Storage {
    alignas(1024) typename Mainloop::TensorStorage tensors;
    alignas(16) typename Mainloop::PipelineStorage pipeline;
    cutlass::arch::ClusterBarrier finished[kUnpublished];
    cutlass::arch::ClusterBarrier published[kUnpublished];
  };
};

// A finished tile, as one thread has it: values of single elements in registers.
//
// The thread has rows row(i, r) for i < kRowBlocks and r < 2, and in each of them, for each j <
// kColumnBlocks, the two neighbouring columns from column(j) on.
template <class Shape>
struct FinishedTile {
  static constexpr int kTileRows = Shape::kRows;
  static constexpr int kTileColumns = Shape::kColumns;
  static constexpr int kRowBlocks = 1;
  static constexpr int kColumnBlocks = Shape::kColumns / 8;
  static constexpr int kThreads = Shape::kTileThreads;
  static constexpr int kValues = kRowBlocks * kColumnBlocks * 4;

  float (&values)[kValues];
  int first_row;  // of the whole matrix
  int first_column;
  int thread;  // among those of the tile

  static __device__ int row_in_tile(int thread, int i, int r) {
    return (thread / kWarpgroup + i) * 64 + thread % kWarpgroup / 32 * 16 + r * 8 + thread % 32 / 4;
  }
  __device__ int row(int i, int r) const { return first_row + row_in_tile(thread, i, r); }
  __device__ int column(int j) const { return first_column + 8 * j + 2 * (thread % 4); }
  __device__ float& value(int i, int r, int j, int c) {
    return values[c + 2 * r + 4 * j + 4 * kColumnBlocks * i];
  }
};

// X and W as the kernel reads them. A tile's rows can be in one of three matrices, in each of which
// they have the same numbers.
inline constexpr int kMatrices = 3;
template <class Shape>
struct ProductArgs {
  typename Shape::Params x[kMatrices];
  int m;
  int n;
  int k;  // not 0
};

// One long function: with its three parts as functions, ptxas of CUDA 13.0 has the matrix
// instructions wait for one another (C7510).
template <class Shape, class Hooks>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(const __grid_constant__ ProductArgs<Shape> args,
                   const __grid_constant__ typename Hooks::Args hook_args) {
  using Mainloop = typename Shape::Mainloop;
  using Pipeline = typename Mainloop::MainloopPipeline;
  using PipelineState = typename Mainloop::PipelineState;
  extern __shared__ __align__(1024) char memory[];
  auto& storage = *reinterpret_cast<typename Shape::Storage*>(memory);

  const int warp = cutlass::canonical_warp_idx_sync();
  const int warpgroup = cutlass::canonical_warp_group_idx();
  const int lane = cutlass::canonical_lane_idx();
  const int thread_in_group = static_cast<int>(threadIdx.x) % kWarpgroup;
  const bool is_producer = warpgroup == 0;
  const auto block_in_cluster = cute::block_rank_in_cluster();
  const int cluster = static_cast<int>(blockIdx.x) / kClusterBlocks;
  const int clusters = static_cast<int>(gridDim.x) / kClusterBlocks;

  if (warp == 0 && cute::elect_one_sync()) {
    for (const auto& params : args.x) Mainloop::prefetch_tma_descriptors(params);
  }
  typename Pipeline::Params pipeline_params;
  if (is_producer && warp == 0) pipeline_params.role = Pipeline::ThreadCategory::Producer;
  if (!is_producer) pipeline_params.role = Pipeline::ThreadCategory::Consumer;
  pipeline_params.is_leader = thread_in_group == 0;
  pipeline_params.num_consumers = Shape::kTileThreads;
  pipeline_params.num_producers = 1;
  pipeline_params.transaction_bytes = args.x[0].tma_transaction_bytes;
  Pipeline pipeline(storage.pipeline, pipeline_params, typename Shape::Cluster{});
  if (warp == 0 && cute::elect_one_sync()) {
    for (int i = 0; i < kUnpublished; ++i) {
      storage.finished[i].init(Shape::kTileThreads);
      storage.published[i].init(1);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();

  Hooks hooks(hook_args);
  Mainloop mainloop;
  const auto sizes = cute::make_shape(args.m, args.n, args.k, 1);
  const int depth_tiles = (args.k + Shape::kDepth - 1) / Shape::kDepth;
  const int tiles = hooks.tiles();

  if (is_producer) {
    cutlass::arch::warpgroup_reg_dealloc<88>();
    if (warp == 0) {
      const auto inputs = mainloop.load_init(sizes, args.x[0]);
      PipelineState state = cutlass::make_producer_start_state<Pipeline>();
      for (int place = cluster; place < tiles; place += clusters) {
        const auto at = hooks.at(place);
        const int row_tile = at.unit * kClusterBlocks + static_cast<int>(block_in_cluster);
        const int row = row_tile * Shape::kRows;
        hooks.before_load(row, lane);
        const auto where = cute::make_coord(row_tile, at.column, cute::_, 0);
        mainloop.load(args.x[hooks.matrix(row)], pipeline, state, inputs, where,
                      cute::make_coord_iterator(depth_tiles), depth_tiles, lane, block_in_cluster,
                      storage.tensors);
        state.advance(depth_tiles);
      }
      mainloop.load_tail(pipeline, state);
    } else if (warp == 1 && Hooks::kPublishes) {
      int number = 0;
      for (int place = cluster; place < tiles; place += clusters, ++number) {
        const auto at = hooks.at(place);
        const int row_tile = at.unit * kClusterBlocks + static_cast<int>(block_in_cluster);
        const int slot = number % kUnpublished;
        storage.finished[slot].wait(number / kUnpublished % 2);
        hooks.publish(row_tile * Shape::kRows, at.column * Shape::kColumns, lane);
        __syncwarp();
        if (lane == 0) storage.published[slot].arrive();
      }
    } else if (warp >= 2) {
      hooks.help(warp - 2, lane);
    }
    return;
  }

  cutlass::arch::warpgroup_reg_alloc<208>();
  PipelineState state;
  const int thread_of_tile = thread_in_group + (warpgroup - 1) * kWarpgroup;
  typename Mainloop::TiledMma tiled_mma;
  int number = 0;
  for (int place = cluster; place < tiles; place += clusters, ++number) {
    const auto at = hooks.at(place);
    const int row_tile = at.unit * kClusterBlocks + static_cast<int>(block_in_cluster);
    auto accumulators =
        cute::partition_fragment_C(tiled_mma, cute::take<0, 2>(typename Shape::TileShape{}));
    using Tile = FinishedTile<Shape>;
    static_assert(decltype(cute::size(accumulators))::value == Tile::kValues);
    mainloop.mma(pipeline, state, accumulators, depth_tiles, thread_of_tile, storage.tensors,
                 args.x[0]);
    mainloop.mma_tail(pipeline, state, depth_tiles);
    state.advance(depth_tiles);
    Tile tile = {.values = *reinterpret_cast<float(*)[Tile::kValues]>(accumulators.data()),
                 .first_row = row_tile * Shape::kRows,
                 .first_column = at.column * Shape::kColumns,
                 .thread = thread_of_tile};
    const int slot = number % kUnpublished;
    // The slot is free at first; afterwards, once its last tile has been published.
    if constexpr (Hooks::kPublishes) storage.published[slot].wait((number / kUnpublished + 1) % 2);
    hooks.finish(tile);
    if constexpr (Hooks::kPublishes) {
      asm volatile("" ::: "memory");  // stores stay before the arrival
      storage.finished[slot].arrive();
    }
  }
  hooks.help(warp, lane);
}

}  // namespace plait::gemm::cuda
