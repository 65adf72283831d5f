// all_gather_matmul in one kernel: the free warps of all blocks write this rank's rows into all
// ranks' memory, in pieces with a flag each. A tile is loaded once the pieces of its rows have
// arrived.
//
// Writing waits for peers to begin, but never for rows, so waits for rows cannot deadlock: see
// docs/concepts/fused-on-gpu.md.
#pragma once

#include "comm/cuda/signals.h"
#include "overlap/cuda/args.h"
#include "overlap/cuda/beginning.cuh"
#include "overlap/cuda/fragments.cuh"

namespace plait::overlap::cuda {

template <class Shape>
class CommFirst {
 public:
  using Args = CommFirstArgs;
  using Flag = comm::cuda::Flag;

  __device__ explicit CommFirst(const Args& args)
      : args_(args),
        epoch_(epoch_of(args.call)),
        word_(comm::cuda::word_of(args.call.fingerprint, epoch_)) {}

  __device__ void block_began() const { count_call(args_.call, epoch_); }
  __device__ void begin(int lane) const {
    if (args_.call.begins && blockIdx.x == 0) announce_call(args_.call, epoch_, lane);
  }

  __device__ int tiles() const { return args_.call.order.count(); }
  __device__ TileAt at(int place) const { return args_.call.order.at(place); }

  // The matrix that holds the tile's rows: 0 and 1 are the gathered rows of calls with even and
  // with odd numbers, 2 is the rank's own x.
  __device__ int matrix(int row) const {
    return args_.reads_own && is_own(row) ? 2 : static_cast<int>(epoch_ & 1U);
  }

  // Waits for the pieces that hold rows of the tile.
  __device__ void before_load(int row, int lane) {
    if ((args_.reads_own && is_own(row)) || row >= args_.call.shards.m) return;
    const int tile = row / Shape::kRows;
    if (tile < 64 && (seen_ >> tile & 1U) != 0) return;
    if (tile < 64) seen_ |= 1ULL << tile;
    const int end = min(row + Shape::kRows, args_.call.shards.m);
    const int last = args_.call.shards.owner(end - 1);
    for (int source = args_.call.shards.owner(row); source <= last; ++source) {
      const int begin = args_.call.shards.begin(source);
      const int first_piece = (max(row, begin) - begin) / args_.piece_rows;
      const int last_piece =
          (min(end, args_.call.shards.end(source)) - 1 - begin) / args_.piece_rows;
      wait_for_pieces(source, first_piece, last_piece, lane);
    }
    __syncwarp();
    // The rows were written by ordinary stores, and the copy engine reads them.
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }

  // Called by a warp. Most pieces have come already: four flags of each lane are looked at at once,
  // because each look takes about a microsecond.
  __device__ void wait_for_pieces(int source, int first, int last, int lane) const {
    constexpr int kAtOnce = 4;
    bool there = last - first < 32 * kAtOnce;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = first + lane + 32 * i;
      there &=
          piece > last || comm::cuda::was_raised(flag_of(args_.call.rank, source, piece), word_);
    }
    if (__all_sync(0xffffffff, there)) {
      comm::cuda::acquire();
      return;
    }
    for (int piece = first + lane; piece <= last; piece += 32)
      comm::cuda::wait(flag_of(args_.call.rank, source, piece), word_, args_.call.waits, source,
                       piece);
  }

  __device__ void help(int warp, int lane) const {
    if (!args_.pushes || warp >= gemm::cuda::kHelpers) return;
    if (args_.call.begins) wait_for_peers(args_.call, epoch_, lane);
    push(static_cast<int>(blockIdx.x) * gemm::cuda::kHelpers + warp,
         static_cast<int>(gridDim.x) * gemm::cuda::kHelpers, lane);
  }

  // Tiles of f32 have no room in shared memory, and the copy engine needs aligned rows.
  __device__ bool is_staged(int row, int /*column*/) const {
    return args_.call.out_kind != kF32 && args_.call.out.aligned && args_.call.n % 8 == 0 &&
           row < args_.call.shards.m;
  }

  template <class Tile>
  __device__ void stage(Tile& tile, char* staged) const {
    if (args_.call.out_kind == kBf16) {
      stage_rows<Bfloat>(tile, args_.call.bias, args_.call.n, staged, Shape::kStagedStride);
    } else {
      stage_rows<Half>(tile, args_.call.bias, args_.call.n, staged, Shape::kStagedStride);
    }
  }

  __device__ void send(int row, int column, const char* staged, int lane) const {
    const int rows = min(Shape::kRows, args_.call.shards.m - row);
    const int bytes = 2 * min(Shape::kColumns, args_.call.n - column);
    for (int r = lane; r < rows; r += 32)
      gemm::cuda::start_copy(args_.call.out.data + (row + r) * args_.call.out.stride + column * 2LL,
                             staged + r * Shape::kStagedStride, bytes);
  }

  __device__ void publish(int /*row*/, int /*column*/, int /*lane*/) const {}

  template <class Tile>
  __device__ void finish(Tile& tile) const {
    if (tile.first_row >= args_.call.shards.m) return;
    if (args_.call.out_kind == kBf16) {
      write<Bfloat>(tile);
    } else if (args_.call.out_kind == kF16) {
      write<Half>(tile);
    } else {
      write<float>(tile);
    }
  }

  // Sends a warp's share of the rank's rows to all ranks.
  __device__ void push(int warp, int warps, int lane) const {
    const int begin = args_.call.shards.begin(args_.call.rank);
    const int rows = args_.call.shards.end(args_.call.rank) - begin;
    const int pieces = (rows + args_.piece_rows - 1) / args_.piece_rows;
    for (int piece = warp; piece < pieces; piece += warps) {
      const int first = piece * args_.piece_rows;
      const int count = min(args_.piece_rows, rows - first);
      copy_rows(first, count, begin, lane);
      __syncwarp();
      if (lane < args_.call.shards.world && (lane != args_.call.rank || args_.pushes_to_self)) {
        const unsigned long long bytes =
            static_cast<unsigned long long>(count) * static_cast<unsigned int>(args_.row_bytes);
        const unsigned long long ready_at =
            lane == args_.call.rank ? 0 : comm::cuda::arrival_over(args_.call.link, lane, bytes);
        comm::cuda::raise(flag_of(lane, args_.call.rank, piece), word_, ready_at);
      }
    }
  }

 private:
  // True if all of a tile's rows are this rank's own.
  __device__ bool is_own(int row) const {
    const int end = min(row + Shape::kRows, args_.call.shards.m);
    return row < end && row >= args_.call.shards.begin(args_.call.rank) &&
           end <= args_.call.shards.end(args_.call.rank);
  }

  __device__ int parity() const { return static_cast<int>(epoch_ & 1U); }

  __device__ Flag* flag_of(int owner, int source, int piece) const {
    const Slots& slots = args_.gathered;
    return slots.flags[owner] + parity() * slots.parity_flags + source * slots.source_flags +
           piece * slots.place_flags;
  }

  __device__ void copy_rows(int first, int count, int begin, int lane) const {
    for (int row = first; row < first + count; ++row)
      copy_row(args_.x + row * args_.x_stride,
               static_cast<long long>(begin + row) * args_.row_bytes, lane);
  }

  // Copies a row to where it belongs among the gathered rows of all ranks. Many loads are under way
  // at once, because each takes about a microsecond.
  __device__ void copy_row(const char* x, long long place, int lane) const {
    constexpr int kAtOnce = 16;
    const auto* from = reinterpret_cast<const uint4*>(x);
    const int count = args_.row_bytes / 16;
    for (int v = lane; v < count; v += kAtOnce * 32) {
      uint4 vectors[kAtOnce];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a)
        if (v + a * 32 < count) vectors[a] = from[v + a * 32];
      for (int step = args_.pushes_to_self ? 0 : 1; step < args_.call.shards.world; ++step) {
        const int peer =
            (args_.call.rank + args_.call.shards.world - step) % args_.call.shards.world;
        auto* to = reinterpret_cast<uint4*>(args_.gathered.data[peer] +
                                            parity() * args_.gathered.parity_bytes + place);
#pragma unroll
        for (int a = 0; a < kAtOnce; ++a)
          if (v + a * 32 < count) to[v + a * 32] = vectors[a];
      }
    }
  }

  template <class Out, class Tile>
  __device__ void write(Tile& tile) const {
    for_each_eight<Out>(tile, args_.call.bias, args_.call.n,
                        [&](const EightOf<Out>& eight, int row, int column) {
                          if (row < args_.call.shards.m && column < args_.call.n)
                            store_eight(args_.call.out, eight, row, column);
                        });
  }

  const Args& args_;
  unsigned int epoch_;
  unsigned long long word_;
  unsigned long long seen_ = 0;  // bit t: all pieces of row tile t have arrived
};

}  // namespace plait::overlap::cuda
