// matmul_reduce_scatter and matmul_all_reduce in one kernel, and the steps of their other
// schedules.
//
// Each tile's partial sums go to the slots of all ranks that own rows of it, this one included.
// Warps that multiply never wait for the sums of others. Beside them, and after them, warps take
// one slice of an own tile after the other: they wait until every rank's partial sums are there,
// add them up as a tree, and write the rows out. See docs/concepts/fused-on-gpu.md for why this
// cannot deadlock.
#pragma once

#include "comm/cuda/signals.h"
#include "overlap/cuda/args.h"
#include "overlap/cuda/beginning.cuh"
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
  static_assert(kSlices == Shape::kTileThreads / 32);

  __device__ explicit ComputeFirst(const Args& args)
      : args_(args),
        epoch_(epoch_of(args.call)),
        word_(comm::cuda::word_of(args.call.fingerprint, epoch_)) {}

  __device__ void block_began() const { count_call(args_.call, epoch_); }
  __device__ void begin(int lane) const {
    if (!args_.call.begins) return;
    if (blockIdx.x == 0) announce_call(args_.call, epoch_, lane);
    wait_for_peers(args_.call, epoch_, lane);
  }

  __device__ int tiles() const { return args_.call.order.count(); }
  __device__ TileAt at(int place) const { return args_.call.order.at(place); }
  __device__ int matrix(int /*row*/) const { return 0; }
  __device__ void before_load(int /*row*/, int /*lane*/) const {}

  // Tiles with rows of several owners are stored row by row, and f32 has no room in shared memory.
  __device__ bool is_staged(int row, int /*column*/) const {
    return args_.wire != kF32 && row < args_.call.shards.m &&
           args_.call.shards.owner(row) == args_.call.shards.owner(last_row_of(row));
  }

  __device__ void stage(Tile& tile, char* staged) const {
    using V = Vectors<Narrow, Tile>;
    auto* vectors = reinterpret_cast<uint4*>(staged);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int u = 0; u < V::kPerRow; ++u)
        vectors[V::index(0, r, u, tile.thread)] = V::pack(tile, 0, r, u);
    }
  }

  // A lane copies what a warp has staged: 16 rows.
  __device__ void send(int row, int column, const char* staged, int lane) const {
    constexpr int kBytes = Vectors<Narrow, Tile>::kPerWarp * 16;
    if (lane >= kSlices || row + 16 * lane > last_row_of(row)) return;
    const int owner = args_.call.shards.owner(row);
    auto* slot =
        reinterpret_cast<char*>(slot_of(owner, args_.call.rank, place_of(row, column, owner)));
    gemm::cuda::start_copy(slot + lane * kBytes, staged + lane * kBytes, kBytes);
  }

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
  __device__ __forceinline__ void help(int /*warp*/, int lane) const {
    if (args_.finishes) work(lane, 0, 0);
  }

  // Does a warp's part of the work: the pieces that it claims, or every `step`-th from `first` on.
  __device__ __forceinline__ void work(int lane, int first, int step) const {
    int number = args_.claims ? taken(claim(lane)) : first;
    for (;;) {
      const Work work = args_.work.at(number);
      if (work.kind == Work::nothing) return;
      // The next piece is claimed before this one is done, because the answer takes long.
      const unsigned int claimed = args_.claims ? claim(lane) : 0;
      if (work.kind == Work::sum) {
        add_up(work, lane);
      } else {
        collect(work, lane);
      }
      number = args_.claims ? taken(claimed) : number + step;
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
  // Lane 0 has the number of the piece, before its other lanes have.
  __device__ unsigned int claim(int lane) const {
    return lane == 0 ? atomicAdd(&args_.call.counters->claims[parity()], 1U) : 0;
  }
  __device__ int taken(unsigned int claimed) const {
    return static_cast<int>(__shfl_sync(0xffffffff, claimed, 0));
  }

  __device__ int piece_of(const Work& work, int place) const {
    return place * args_.work.pieces() + work.slice * args_.work.parts + work.part;
  }

  __device__ int last_row_of(int row) const {
    return min(row + Shape::kRows, args_.call.shards.m) - 1;
  }

  __device__ int place_of(int row, int column, int owner) const {
    return (row / Shape::kRows - args_.work.tiles[owner].first) * args_.tile_columns +
           column / Shape::kColumns;
  }

  __device__ int parity() const { return static_cast<int>(epoch_ & 1U); }

  __device__ Flag* flag_of(const Slots& slots, int owner, int source, int place) const {
    return slots.flags[owner] + parity() * slots.parity_flags + place * slots.place_flags +
           source * slots.source_flags;
  }

  __device__ void raise_flag(const Slots& slots, int owner, int place,
                             unsigned long long bytes) const {
    Flag* flag = flag_of(slots, owner, args_.call.rank, place);
    if (owner == args_.call.rank) {
      comm::cuda::raise_here(flag, word_);
    } else {
      comm::cuda::raise(flag, word_, comm::cuda::arrival_over(args_.call.link, owner, bytes));
    }
  }

  __device__ uint4* slot_of(int owner, int source, int place) const {
    const Slots& slots = args_.sums;
    return reinterpret_cast<uint4*>(slots.data[owner] + parity() * slots.parity_bytes +
                                    place * slots.place_bytes + source * slots.source_bytes);
  }

  template <class Wire>
  __device__ void store_partial(Tile& tile) const {
    using V = Vectors<Wire, Tile>;
    const int last_row = last_row_of(tile.first_row);
    const int first = args_.call.shards.owner(tile.first_row);
    const bool shared = first != args_.call.shards.owner(last_row);
#pragma unroll
    for (int i = 0; i < Tile::kRowBlocks; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = tile.row(i, r);
        if (row > last_row) continue;
        const int owner = shared ? args_.call.shards.owner(row) : first;
        uint4* slot =
            slot_of(owner, args_.call.rank, place_of(tile.first_row, tile.first_column, owner));
#pragma unroll
        for (int u = 0; u < V::kPerRow; ++u)
          slot[V::index(i, r, u, tile.thread)] = V::pack(tile, i, r, u);
      }
    }
  }

  // Adds up one slice of a tile, once the partial sums of all ranks have arrived.
  __device__ __forceinline__ void add_up(const Work& work, int lane) const {
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
        16 * (Shape::kColumns / args_.work.parts) * (args_.call.out_kind == kF32 ? 4 : 2);
    if (lane < args_.call.shards.world && lane != args_.call.rank)
      raise_flag(args_.results, lane, piece_of(work, place),
                 static_cast<unsigned long long>(bytes));
  }

  template <class Wire>
  __device__ __forceinline__ void add_up_of(const Work& work, int place, int lane) const {
    if (args_.call.shards.world <= 2) {
      add_up_some<Wire, 2>(work, place, lane);
    } else if (args_.call.shards.world <= 4) {
      add_up_some<Wire, 4>(work, place, lane);
    } else {
      add_up_some<Wire, kMostRanks>(work, place, lane);
    }
  }

  // Sums of up to kRanks ranks. A lane has two elements of each of four column blocks at a time.
  template <class Wire, int kRanks>
  __device__ __forceinline__ void add_up_some(const Work& work, int place, int lane) const {
    using V = Vectors<Wire, Tile>;
    constexpr int kVectors = 8 / V::kElements;  // for eight elements
    // Several loads are under way at once, because each takes about a microsecond.
    constexpr int kAtOnce = kRanks * kVectors >= 16 ? 1 : 16 / (kRanks * kVectors);
    const int thread = work.slice * 32 + lane;
    const int halves = args_.work.halves;
    const int per_part = Tile::kColumnBlocks / 4 / (args_.work.parts / halves);
    const int first_r = work.part % halves;
    const int first_u = work.part / halves * per_part;
#pragma unroll 1
    for (int r = first_r; r < 2; r += halves) {
      const int row = work.row_tile * Shape::kRows + Tile::row_in_tile(thread, 0, r);
      const bool own = args_.own_begin <= row && row < args_.own_end;
#pragma unroll 1
      for (int u = first_u; u < first_u + per_part; u += kAtOnce) {
        const int first_column = work.column_tile * Shape::kColumns + 32 * u;
        if (first_column >= args_.call.n) break;
        uint4 vectors[kAtOnce][kVectors][kRanks];
#pragma unroll
        for (int source = 0; source < kRanks; ++source) {
          const uint4* slot =
              slot_of(args_.call.rank, source, place) + V::index(0, r, u * kVectors, thread);
#pragma unroll
          for (int v = 0; v < kAtOnce * kVectors; ++v) {
            vectors[v / kVectors][v % kVectors][source] = make_uint4(0, 0, 0, 0);
            if (own && source < args_.call.shards.world)
              vectors[v / kVectors][v % kVectors][source] = load_vector(slot + 32 * v);
          }
        }
#pragma unroll
        for (int a = 0; a < kAtOnce; ++a) {
          float sums[8];
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            float total[V::kElements];
            tree_of<V, kRanks, kRanks>(vectors[a][v], 0, total);
#pragma unroll
            for (int e = 0; e < V::kElements; ++e) sums[v * V::kElements + e] = total[e];
          }
          write(sums, row, first_column + 32 * a, own);
        }
      }
    }
  }

  __device__ void write(const float (&sums)[8], int row, int first_column, bool own) const {
    if (args_.call.out_kind == kBf16) {
      write_as<Bfloat>(sums, row, first_column, own);
    } else if (args_.call.out_kind == kF16) {
      write_as<Half>(sums, row, first_column, own);
    } else {
      write_as<float>(sums, row, first_column, own);
    }
  }

  template <class Out>
  __device__ void write_as(const float (&sums)[8], int row, int first_column, bool own) const {
    const EightOf<Out> eight =
        finished_eight<Out>(sums, args_.call.bias, args_.call.n, first_column);
    const int column = first_column + 8 * (static_cast<int>(threadIdx.x) % 4);
    if (!own || column >= args_.call.n) return;
    const int first_row = args_.spreads ? 0 : args_.own_begin;
    store_eight(args_.call.out, eight, row - first_row, column);
    if (!args_.spreads) return;
    for (int step = 1; step < args_.call.shards.world; ++step) {
      const int peer = (args_.call.rank + step) % args_.call.shards.world;
      store_eight(results_at(peer), eight, row, column);
    }
  }

  // Adds up the `kCount` ranks from `first` on, as far as they exist, as a tree: neighbours in
  // pairs, level by level.
  template <class V, int kCount, int kRanks>
  __device__ void tree_of(const uint4 (&vectors)[kRanks], int first,
                          float (&total)[V::kElements]) const {
    if constexpr (kCount == 1) {
#pragma unroll
      for (int source = 0; source < kRanks; ++source)
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

  // The rows that a rank receives finished: a place for each row of the whole matrix.
  __device__ Rows results_at(int rank) const {
    return {.data = args_.results.data[rank] + parity() * args_.results.parity_bytes,
            .stride = args_.results_stride,
            .n = args_.call.n,
            .aligned = true};
  }

  // Copies a slice that another rank has finished.
  __device__ __forceinline__ void collect(const Work& work, int lane) const {
    const int first_row = work.row_tile * Shape::kRows;
    const int first_column = work.column_tile * Shape::kColumns;
    const int piece = piece_of(work, place_of(first_row, first_column, work.rank));
    const bool there = comm::cuda::wait(flag_of(args_.results, args_.call.rank, work.rank, piece),
                                        word_, args_.call.waits, work.rank, piece);
    if (!__all_sync(0xffffffff, there)) return;
    __syncwarp();  // orders memory, which the vote does not
    const int width = Shape::kColumns / args_.work.parts;
    const int column = first_column + work.part * width;
    const int columns = min(width, args_.call.n - column);
    // A warp has sixteen neighbouring rows.
    const int top = first_row + Tile::row_in_tile(work.slice * 32, 0, 0);
    const int from = max(top, args_.call.shards.begin(work.rank));
    const int to = min(top + 16, args_.call.shards.end(work.rank));
    if (from < to && columns > 0)
      copy_rows(results_at(args_.call.rank), args_.call.out, {from, to, column, columns},
                args_.call.out_kind == kF32 ? 4 : 2, lane);
  }

  template <class Wire>
  __device__ void exchange_of(const char* staged) const {
    using V = Vectors<Wire, Tile>;
    const int columns = args_.call.order.columns;
    int number = 0;
    for (int step = 1; step <= args_.call.shards.world; ++step) {
      const int owner = (args_.call.rank + step) % args_.call.shards.world;
      const auto [first_tile, tiles] = args_.work.tiles[owner];
      for (int t = 0; t < tiles * columns; ++t, ++number) {
        if (number % static_cast<int>(gridDim.x) != static_cast<int>(blockIdx.x)) continue;
        const int row_tile = t % tiles;
        const int column = args_.call.order.first_column + t / tiles;
        const int place = row_tile * args_.tile_columns + column;
        const auto* from =
            reinterpret_cast<const uint4*>(staged) +
            (static_cast<long long>(first_tile + row_tile) * args_.tile_columns + column) *
                V::kPerTile;
        copy_vectors(from, slot_of(owner, args_.call.rank, place), V::kPerTile);
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
