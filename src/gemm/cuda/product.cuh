// A product of 16-bit matrices on a Hopper GPU, in one persistent kernel.
//
// Each block has three warpgroups. One thread of the first loads tiles of X and W into shared
// memory (TMA), the other two multiply them (wgmma) and finish the tiles. Most finished tiles go to
// shared memory, and a second warp of the first warpgroup has the copy engine store them from
// there, while the next tile is multiplied. The last two warps are free for the hooks' other work.
//
// Hooks decide the order of the tiles, what is waited for, and what becomes of a finished tile:
//
//   struct Hooks {
//     struct Args;                               // passed to the kernel by value
//     __device__ explicit Hooks(const Args&);    // by every thread
//     __device__ void block_began();             // by one thread, once all threads have hooks
//     __device__ void begin(int lane);           // by the sending warp, before the first tile
//     __device__ int tiles() const;              // of a cluster's size
//     __device__ TileAt at(int place) const;     // unit: as many rows as a cluster has
//     __device__ int matrix(int row) const;      // which X has the tile's rows
//     __device__ void before_load(int row, int lane);     // by a whole warp
//     // Whether the tile goes through shared memory. If so, all threads of the tile stage it, and
//     // the sending warp starts the copies. Otherwise the threads finish it by themselves.
//     __device__ bool is_staged(int row, int column) const;
//     template <class Tile> __device__ void stage(Tile& tile, char* staged);
//     __device__ void send(int row, int column, const char* staged, int lane);
//     template <class Tile> __device__ void finish(Tile& tile);
//     __device__ void publish(int row, int column, int lane);  // by a warp, once all is stored
//     __device__ void help(int warp, int lane);  // by each free warp, and by the others at the end
//   };
//
// The sum over k is one chain of f32 additions per element, in steps of 16 values, in an order that
// depends on nothing but k.
#pragma once

// CUTLASS has matrix instructions of 160 and 224 columns only if this is defined.
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/pipeline/pipeline.hpp>

#include "gemm/cuda/tile.cuh"

namespace plait::gemm::cuda {

// Layout tags of W.
struct OutIn {
  using Cutlass = cutlass::layout::ColumnMajor;
};
struct InOut {
  using Cutlass = cutlass::layout::RowMajor;
};

// A tile of a block, as the sending warp knows it.
struct SentTile {
  int row;
  int column;
  bool is_staged;
};

// CUDA's own type for elements, which are CUTLASS's.
template <class Element>
using NarrowOf =
    std::conditional_t<std::is_same_v<Element, cutlass::half_t>, __half, __nv_bfloat16>;

template <class Element_, class Layout_, int kColumns_ = 256>
struct ProductShape : TileGeometry<NarrowOf<Element_>, kColumns_> {
  using Element = Element_;
  using Layout = Layout_;
  using Geometry = TileGeometry<NarrowOf<Element>, kColumns_>;
  using Geometry::kColumns;
  using Geometry::kRows;
  using Geometry::kStagedBytes;
  static constexpr int kDepth = 64;
  static constexpr int kStages =
      (kSharedBytes - kStagedBytes - 2048) / ((kRows + kColumns) * kDepth * 2);

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
    alignas(128) char staged[kStagedBytes];
    cutlass::arch::ClusterBarrier full;  // a tile is finished
    cutlass::arch::ClusterBarrier free;  // the next may be: this one
    SentTile next;
  };
  static_assert(sizeof(Storage) <= kSharedBytes);
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

// Waits until the copies that this thread has started no longer need their shared memory.
__device__ inline void wait_until_read() {
  asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Waits until this thread could see what its copies have stored.
__device__ inline void wait_until_stored() {
  asm volatile("cp.async.bulk.wait_group 0;\n\tfence.proxy.async;" ::: "memory");
}

// The tile at this place of the order, if there is one.
template <class Shape, class Hooks>
__device__ SentTile sent_tile(const Hooks& hooks, int place, int tiles, unsigned int block) {
  if (place >= tiles) return {};
  const auto at = hooks.at(place);
  const int row = (at.unit * kClusterBlocks + static_cast<int>(block)) * Shape::kRows;
  const int column = at.column * Shape::kColumns;
  return {.row = row, .column = column, .is_staged = hooks.is_staged(row, column)};
}

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
    storage.full.init(Shape::kTileThreads);
    storage.free.init(1);
    cutlass::arch::fence_barrier_init();
  }
  Hooks hooks(hook_args);
  __syncthreads();
  if (threadIdx.x == 0) hooks.block_began();
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();

  Mainloop mainloop;
  const auto sizes = cute::make_shape(args.m, args.n, args.k, 1);
  const int depth_tiles = (args.k + Shape::kDepth - 1) / Shape::kDepth;
  const int tiles = hooks.tiles();

  if (is_producer) {
    cutlass::arch::warpgroup_reg_dealloc<120>();
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
    } else if (warp == 1) {
      // Warps that multiply have no time to find out which tile is next: this warp tells them.
      hooks.begin(lane);
      __syncwarp();
      SentTile tile = sent_tile<Shape>(hooks, cluster, tiles, block_in_cluster);
      if (lane == 0 && cluster < tiles) {
        storage.next = tile;
        storage.free.arrive();
      }
      int number = 0;
      for (int place = cluster; place < tiles; place += clusters, ++number) {
        const SentTile next = sent_tile<Shape>(hooks, place + clusters, tiles, block_in_cluster);
        storage.full.wait(number % 2);
        if (tile.is_staged) {
          hooks.send(tile.row, tile.column, storage.staged, lane);
          wait_until_read();
        }
        __syncwarp();
        if (lane == 0 && place + clusters < tiles) {
          storage.next = next;
          storage.free.arrive();
        }
        if (tile.is_staged) wait_until_stored();
        __syncwarp();
        hooks.publish(tile.row, tile.column, lane);
        tile = next;
      }
    } else if (warp >= 2) {
      hooks.help(warp - 2, lane);
    }
    return;
  }

  cutlass::arch::warpgroup_reg_alloc<192>();
  PipelineState state;
  const int thread_of_tile = thread_in_group + (warpgroup - 1) * kWarpgroup;
  typename Mainloop::TiledMma tiled_mma;
  int number = 0;
  for (int place = cluster; place < tiles; place += clusters, ++number) {
    auto accumulators =
        cute::partition_fragment_C(tiled_mma, cute::take<0, 2>(typename Shape::TileShape{}));
    using Tile = FinishedTile<typename Shape::Geometry>;
    static_assert(decltype(cute::size(accumulators))::value == Tile::kValues);
    mainloop.mma(pipeline, state, accumulators, depth_tiles, thread_of_tile, storage.tensors,
                 args.x[0]);
    mainloop.mma_tail(pipeline, state, depth_tiles);
    state.advance(depth_tiles);
    storage.free.wait(number % 2);
    Tile tile = {.values = *reinterpret_cast<float(*)[Tile::kValues]>(accumulators.data()),
                 .first_row = storage.next.row,
                 .first_column = storage.next.column,
                 .thread = thread_of_tile};
    if (storage.next.is_staged) {
      hooks.stage(tile, storage.staged);
      cutlass::arch::fence_view_async_shared();  // the copy engine reads what was stored
    } else {
      hooks.finish(tile);
    }
    asm volatile("" ::: "memory");  // stores stay before the arrival
    storage.full.arrive();
  }
  hooks.help(warp, lane);
}

}  // namespace plait::gemm::cuda
