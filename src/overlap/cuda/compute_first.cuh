// matmul_reduce_scatter and matmul_all_reduce in one kernel, and the steps of their other
// schedules.
//
// The warps that multiply write each tile's partial sums to the slots of all ranks that own rows of
// it, this one included, and never wait. Beside them, and after them, warps take one slice of an
// own tile after the other: they wait until every rank's partial sums are there, add them up as a
// tree, and write the rows out. See docs/concepts/fused-on-gpu.md for why this cannot deadlock.
#pragma once

#include "comm/cuda/signals.h"
#include "overlap/cuda/args.h"
#include "overlap/cuda/copy.cuh"
#include "overlap/cuda/fragments.cuh"

namespace plait::overlap::cuda {

// A call as all kernels of the operator see it: the hooks of the product's kernel, and the steps of
// the other schedules.
template <class Shape>
class ComputeFirst {
 public:
  using Args = ComputeFirstArgs;
  using Flag = comm::cuda::Flag;
  using Narrow = typename Shape::Narrow;
  using Tile = gemm::cuda::FinishedTile<Shape>;
  static constexpr bool kPublishes = true;
  static constexpr int kSlices = Shape::kTileThreads / 32;  // of a tile, one for each warp

  __device__ explicit ComputeFirst(const Args& args)
      : args_(args),
        epoch_(args.call.waits.epoch != nullptr
                   ? *static_cast<volatile unsigned int*>(args.call.waits.epoch)
                   : 0),
        word_(comm::cuda::word_of(args.call.fingerprint, epoch_)) {}

  __device__ int tiles() const { return args_.call.order.count(); }
  __device__ TileAt at(int place) const { return args_.call.order.at(place); }
  __device__ int matrix(int /*row*/) const { return 0; }
  __device__ void before_load(int /*row*/, int /*lane*/) const {}

  __device__ void finish(Tile& tile) const {
    if (tile.first_row >= args_.call.shards.m) return;
    if (args_.wire == kF32) {
      store_partial<float>(tile);
    } else {
      store_partial<Narrow>(tile);
    }
  }

  // Raises the tile's flag at each of its owners.
  __device__ void publish(int row, int column, int lane) const {
    if (row >= args_.call.shards.m || args_.sums.flags[0] == nullptr) return;
    const int end = min(row + Shape::kRows, args_.call.shards.m);
    const int owner = args_.call.shards.owner(row) + lane;
    if (owner > args_.call.shards.owner(end - 1)) return;
    const int rows =
        min(end, args_.call.shards.end(owner)) - max(row, args_.call.shards.begin(owner));
    const int columns = min(Shape::kColumns, args_.call.n - column);
    const auto bytes = static_cast<unsigned long long>(rows) * static_cast<unsigned int>(columns) *
                       (args_.wire == kF32 ? 4U : 2U);
    raise_flag(args_.sums, owner, place_of(row, column, owner), bytes);
  }

  // Adds up own rows and fetches other ranks' finished rows, as long as there is work.
  __device__ void help(int /*warp*/, int lane) const {
    if (args_.finishes) work(lane, 0, 0);
  }

  // Does a warp's part of the work: the pieces that it claims, or every `step`-th from `first` on.
  __device__ void work(int lane, int first, int step) const {
    for (int number = next(lane, first, 0);; number = next(lane, number, step)) {
      const Work work = work_at(number);
      if (work.kind == Work::nothing) return;
      if (work.kind == Work::sum) {
        add_up(work, lane);
      } else {
        collect(work, lane);
      }
    }
  }

  // Copies tiles that were multiplied into this rank's own memory to their owners' slots.
  __device__ void exchange(const char* staged) const {
    if (args_.wire == kF32) {
      exchange_of<float>(staged);
    } else {
      exchange_of<Narrow>(staged);
    }
  }

 private:
  // The tiles, one below the other, that hold rows of a rank: the first, and their number.
  struct TileRange {
    int first;
    int count;
  };
  __device__ TileRange tiles_of(int rank) const {
    const int begin = args_.call.shards.begin(rank);
    const int end = args_.call.shards.end(rank);
    const int first = begin / Shape::kRows;
    return {first, begin < end ? (end - 1) / Shape::kRows - first + 1 : 0};
  }

  // A piece of work: a slice of a tile with rows that `rank` owns.
  struct Work {
    enum Kind { nothing, sum, fetch } kind;
    int rank;
    int row_tile;
    int column_tile;
    int slice;
  };

  __device__ int next(int lane, int number, int step) const {
    if (args_.claims == nullptr) return number + step;
    int claimed = 0;
    if (lane == 0) claimed = static_cast<int>(atomicAdd(args_.claims, 1U));
    return __shfl_sync(0xffffffff, claimed, 0);
  }

  // The order of pieces: the sums of a group of columns, then the rows of the group before that
  // other ranks have finished, and so on. A warp that waits for another rank's sums of a group thus
  // leaves none of this rank's sums of that group, or of the next, to be claimed.
  __device__ Work work_at(int number) const {
    const TileOrder& order = args_.call.order;
    const int group = order.column_group;
    for (int column = 0; column < order.columns + group; column += group) {
      const int width = min(group, order.columns - column);
      if (width > 0) {
        const TileRange own = tiles_of(args_.call.rank);
        if (number < own.count * width * kSlices)
          return slice_at(Work::sum, args_.call.rank, number, column);
        number -= own.count * width * kSlices;
      }
      if (column == 0 || !args_.spreads) continue;
      const int earlier = min(group, order.columns - (column - group));
      for (int step = 1; step < args_.call.shards.world; ++step) {
        const int source = (args_.call.rank + step) % args_.call.shards.world;
        const int pieces = tiles_of(source).count * earlier * kSlices;
        if (number < pieces) return slice_at(Work::fetch, source, number, column - group);
        number -= pieces;
      }
    }
    return {.kind = Work::nothing, .rank = 0, .row_tile = 0, .column_tile = 0, .slice = 0};
  }

  __device__ Work slice_at(typename Work::Kind kind, int rank, int number, int column) const {
    const TileRange tiles = tiles_of(rank);
    const int tile = number / kSlices;
    return {.kind = kind,
            .rank = rank,
            .row_tile = tiles.first + tile % tiles.count,
            .column_tile = args_.call.order.first_column + column + tile / tiles.count,
            .slice = number % kSlices};
  }

  __device__ int place_of(int row, int column, int owner) const {
    const int first = args_.call.shards.begin(owner) / Shape::kRows;
    return (row / Shape::kRows - first) * args_.tile_columns + column / Shape::kColumns;
  }

  __device__ int parity() const { return static_cast<int>(epoch_ & 1U); }

  __device__ Flag* flag_of(const Slots& slots, int owner, int source, int place) const {
    return slots.flags[owner] + parity() * slots.parity_flags + source * slots.source_flags + place;
  }

  __device__ void raise_flag(const Slots& slots, int owner, int place,
                             unsigned long long bytes) const {
    const unsigned long long ready_at =
        owner == args_.call.rank ? 0 : comm::cuda::arrival_over(args_.call.link, owner, bytes);
    comm::cuda::raise(flag_of(slots, owner, args_.call.rank, place), word_, ready_at);
  }

  template <class Wire>
  __device__ uint4* slot_of(int owner, int source, int place) const {
    const Slots& slots = args_.sums;
    return reinterpret_cast<uint4*>(slots.data[owner] + parity() * slots.parity_bytes +
                                    source * slots.source_bytes) +
           static_cast<long long>(place) * Vectors<Wire, Tile>::kPerTile;
  }

  template <class Wire>
  __device__ void store_partial(Tile& tile) const {
    using V = Vectors<Wire, Tile>;
    const int last_row = min(tile.first_row + Shape::kRows, args_.call.shards.m) - 1;
    const int first = args_.call.shards.owner(tile.first_row);
    const bool shared = first != args_.call.shards.owner(last_row);
#pragma unroll
    for (int i = 0; i < Tile::kRowBlocks; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = tile.row(i, r);
        if (row > last_row) continue;
        const int owner = shared ? args_.call.shards.owner(row) : first;
        uint4* slot = slot_of<Wire>(owner, args_.call.rank,
                                    place_of(tile.first_row, tile.first_column, owner));
#pragma unroll
        for (int u = 0; u < V::kPerRow; ++u)
          slot[V::index(i, r, u, tile.thread)] = V::pack(tile, i, r, u);
      }
    }
  }

  // Adds up one slice of a tile, once the partial sums of all ranks have arrived.
  __device__ void add_up(const Work& work, int lane) const {
    const int row = work.row_tile * Shape::kRows;
    const int place = place_of(row, work.column_tile * Shape::kColumns, args_.call.rank);
    bool there = true;
    if (lane < args_.call.shards.world)
      there = comm::cuda::wait(flag_of(args_.sums, args_.call.rank, lane, place), word_,
                               args_.call.waits, lane, place);
    // After a wait that gave up, nothing is passed on to other ranks either.
    if (!__all_sync(0xffffffff, there)) return;
    __syncwarp();  // orders memory, which the vote does not
    if (args_.wire == kF32) {
      add_up_of<float>(work, place, lane);
    } else {
      add_up_of<Narrow>(work, place, lane);
    }
    if (!args_.spreads) return;
    __syncwarp();
    const int bytes =
        32 * Tile::kRowBlocks * Shape::kColumns / 2 * (args_.call.out_kind == kF32 ? 4 : 2);
    if (lane < args_.call.shards.world && lane != args_.call.rank)
      raise_flag(args_.results, lane, place * kSlices + work.slice,
                 static_cast<unsigned long long>(bytes));
  }

  template <class Wire>
  __device__ void add_up_of(const Work& work, int place, int lane) const {
    if (args_.call.out_kind == kBf16) {
      add_up_to<Wire, Bfloat>(work, place, lane);
    } else if (args_.call.out_kind == kF16) {
      add_up_to<Wire, Half>(work, place, lane);
    } else {
      add_up_to<Wire, float>(work, place, lane);
    }
  }

  template <class Wire, class Out>
  __device__ void add_up_to(const Work& work, int place, int lane) const {
    const int thread = work.slice * 32 + lane;
    const int first_row = work.row_tile * Shape::kRows;
    const int begin = args_.call.shards.begin(args_.call.rank);
    const int end = args_.call.shards.end(args_.call.rank);
    const int quarter = lane % 4;
#pragma unroll 1
    for (int block = 0; block < 2 * Tile::kRowBlocks; ++block) {
      const int row = first_row + Tile::row_in_tile(thread, block / 2, block % 2);
      const bool own = begin <= row && row < end;
#pragma unroll 1
      for (int u = 0; u < Tile::kColumnBlocks / 4; ++u) {
        const int first_column = work.column_tile * Shape::kColumns + 32 * u;
        if (first_column >= args_.call.n) break;
        float sums[8];
        sum_of_ranks<Wire>(sums, place, block, u, thread, own);
        const EightOf<Out> eight =
            finished_eight<Out>(sums, args_.call.bias, args_.call.n, first_column);
        const int column = first_column + 8 * quarter;
        if (!own || column >= args_.call.n) continue;
        store_eight(args_.call.out, eight, row - (args_.spreads ? 0 : begin), column);
        if (args_.spreads) spread(eight, row, column);
      }
    }
  }

  template <class Out>
  __device__ void spread(const EightOf<Out>& eight, int row, int column) const {
    for (int step = 1; step < args_.call.shards.world; ++step) {
      const int peer = (args_.call.rank + step) % args_.call.shards.world;
      store_eight(results_at(peer), eight, row, column);
    }
  }

  // Adds up two elements of each of four column blocks over ranks, as a tree: neighbours in pairs,
  // level by level. All loads are under way before the first addition.
  template <class Wire>
  __device__ void sum_of_ranks(float (&sums)[8], int place, int block, int u, int thread,
                               bool own) const {
    using V = Vectors<Wire, Tile>;
    constexpr int kParts = 8 / V::kElements;  // vectors for eight elements
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int index = V::index(block / 2, block % 2, u * kParts + part, thread);
      uint4 vectors[kMostRanks];
#pragma unroll
      for (int source = 0; source < kMostRanks; ++source) {
        vectors[source] = make_uint4(0, 0, 0, 0);
        if (own && source < args_.call.shards.world)
          vectors[source] = load_vector(slot_of<Wire>(args_.call.rank, source, place) + index);
      }
      float total[V::kElements];
      tree_of<V, kMostRanks>(vectors, 0, total);
#pragma unroll
      for (int e = 0; e < V::kElements; ++e) sums[part * V::kElements + e] = total[e];
    }
  }

  // Adds up the `kCount` ranks from `first` on, as far as they exist.
  template <class V, int kCount>
  __device__ void tree_of(const uint4 (&vectors)[kMostRanks], int first,
                          float (&total)[V::kElements]) const {
    if constexpr (kCount == 1) {
#pragma unroll
      for (int source = 0; source < kMostRanks; ++source)
        if (source == first) V::unpack(vectors[source], total);
    } else {
      tree_of<V, kCount / 2>(vectors, first, total);
      if (first + kCount / 2 >= args_.call.shards.world) return;
      float right[V::kElements];
      tree_of<V, kCount / 2>(vectors, first + kCount / 2, right);
#pragma unroll
      for (int e = 0; e < V::kElements; ++e) total[e] = total[e] + right[e];
    }
  }

  // Where a rank receives finished rows: a place for each row of the whole matrix.
  __device__ Rows results_at(int rank) const {
    return {.data = args_.results.data[rank] + parity() * args_.results.parity_bytes,
            .stride = args_.results_stride,
            .n = args_.call.n,
            .aligned = true};
  }

  // Copies a slice that another rank has finished.
  __device__ void collect(const Work& work, int lane) const {
    const int first_row = work.row_tile * Shape::kRows;
    const int first_column = work.column_tile * Shape::kColumns;
    const int place = place_of(first_row, first_column, work.rank) * kSlices + work.slice;
    const bool there = comm::cuda::wait(flag_of(args_.results, args_.call.rank, work.rank, place),
                                        word_, args_.call.waits, work.rank, place);
    if (!__all_sync(0xffffffff, there)) return;
    __syncwarp();  // orders memory, which the vote does not
    const int begin = args_.call.shards.begin(work.rank);
    const int end = args_.call.shards.end(work.rank);
    const int columns = min(Shape::kColumns, args_.call.n - first_column);
#pragma unroll 1
    for (int block = 0; block < Tile::kRowBlocks; ++block) {
      // A warp has sixteen neighbouring rows of each block.
      const int top = first_row + Tile::row_in_tile(work.slice * 32, block, 0);
      const int from = max(top, begin);
      const int to = min(top + 16, end);
      if (from < to) {
        copy_rows(results_at(args_.call.rank), args_.call.out, {from, to, first_column, columns},
                  args_.call.out_kind == kF32 ? 4 : 2, lane);
      }
    }
  }

  template <class Wire>
  __device__ void exchange_of(const char* staged) const {
    using V = Vectors<Wire, Tile>;
    const int columns = args_.call.order.columns;
    int number = 0;
    for (int step = 1; step <= args_.call.shards.world; ++step) {
      const int owner = (args_.call.rank + step) % args_.call.shards.world;
      const auto [first_tile, tiles] = tiles_of(owner);
      for (int t = 0; t < tiles * columns; ++t, ++number) {
        if (number % static_cast<int>(gridDim.x) != static_cast<int>(blockIdx.x)) continue;
        const int row_tile = t % tiles;
        const int column = args_.call.order.first_column + t / tiles;
        const int place = row_tile * args_.tile_columns + column;
        const auto* from =
            reinterpret_cast<const uint4*>(staged) +
            (static_cast<long long>(first_tile + row_tile) * args_.tile_columns + column) *
                V::kPerTile;
        copy_vectors(from, slot_of<Wire>(owner, args_.call.rank, place), V::kPerTile);
        __syncthreads();
        if (threadIdx.x == 0)
          raise_flag(args_.sums, owner, place, static_cast<unsigned long long>(V::kPerTile) * 16);
      }
    }
  }

  const Args& args_;
  unsigned int epoch_;
  unsigned long long word_;
};

}  // namespace plait::overlap::cuda
