// The order in which warps add up own rows, and fetch rows that other ranks have added up.
//
// A piece of work is a part of the columns of a slice of a tile: the rows that one warp multiplies.
// R(g) are the pieces that add up group g of the columns, and C(g) those that fetch it. Warps take
// them in the order
//
//   R(0)  R(1)  C(0)  R(2)  C(1)  ...
//
// A warp that waits for another rank's sums of a group thus leaves none of this rank's sums of that
// group, or of the next, to be taken.
//
// The functions are compiled for the CPU as well, where the tests check them. Divisions take long
// on a GPU: what doesn't depend on the piece is computed before.
#pragma once

#include "overlap/cuda/tile_order.h"

namespace plait::overlap::cuda {

inline constexpr int kSlices = 8;     // of a tile
inline constexpr int kMostParts = 4;  // of a slice that raises flags
inline constexpr int kMostPieces = kSlices * kMostParts;

// The tiles, one below the other, that hold rows of a rank: the first, and their number.
struct TileRange {
  int first;
  int count;
};

struct Work {
  enum Kind { nothing, sum, fetch } kind = nothing;
  int rank = 0;  // whose rows they are
  int row_tile = 0;
  int column_tile = 0;
  int slice = 0;
  int part = 0;
};

struct WorkOrder {
  TileRange tiles[kMostRanks];  // by rank
  int rank;
  int world;
  int first_column;  // of tiles
  int columns;
  int column_group;
  int parts;      // of a slice
  int halves;     // 2: each part is the upper or the lower rows of the slice alone
  int groups;     // of columns
  int sums;       // pieces of R(g), except for the last
  int last_sums;  // those of the last
  int fetches;    // pieces of C(g), except for the last; 0: nothing is fetched

  PLAIT_ANYWHERE int pieces() const { return kSlices * parts; }  // of a tile

  // Before step i all groups up to i are added up, and those before i are fetched.
  PLAIT_ANYWHERE Work at(int number) const {
    if (groups == 0) return {};
    const int first = groups == 1 ? last_sums : sums;
    if (number < first) return piece(Work::sum, rank, number, 0);
    number -= first;
    if (groups > 1) {
      const int each = sums + fetches;
      const int most = groups - 2;
      const int step = each == 0 || number / each > most ? most : number / each;
      number -= step * each;
      const int of_step = step == most ? last_sums : sums;
      if (number < of_step) return piece(Work::sum, rank, number, step + 1);
      number -= of_step;
      if (number < fetches) return fetched(number, step);
      number -= fetches;
    }
    return fetches == 0 ? Work{} : fetched(number, groups - 1);
  }

 private:
  PLAIT_ANYWHERE Work fetched(int number, int group) const {
    const int rest = columns - group * column_group;
    const int width = rest < column_group ? rest : column_group;
    for (int step = 1; step < world; ++step) {
      const int source = rank + step < world ? rank + step : rank + step - world;
      const int of_source = tiles[source].count * width * pieces();
      if (number < of_source) return piece(Work::fetch, source, number, group);
      number -= of_source;
    }
    return {};
  }

  PLAIT_ANYWHERE Work piece(Work::Kind kind, int owner, int number, int group) const {
    const int tile = number / pieces();
    const int in_tile = number - tile * pieces();
    const int column = tile / tiles[owner].count;
    return {.kind = kind,
            .rank = owner,
            .row_tile = tiles[owner].first + tile - column * tiles[owner].count,
            .column_tile = first_column + group * column_group + column,
            .slice = in_tile / parts,
            .part = in_tile % parts};
  }
};

// The kinds of work of a call's warps.
struct WorkKind {
  bool spreads;      // the sums go to all ranks, so that there is something to fetch
  int wire_vectors;  // of 16 bytes, for eight elements
  int warps;         // that take pieces once all tiles are multiplied
};

inline TileRange tiles_of(const Shards& shards, int rank, int tile_rows) {
  const int begin = shards.begin(rank);
  const int end = shards.end(rank);
  const int first = begin / tile_rows;
  return {.first = first, .count = begin < end ? (end + tile_rows - 1) / tile_rows - first : 0};
}

inline WorkOrder work_order(const Shards& shards, int rank, int tile_rows, const TileOrder& order,
                            const WorkKind& kind) {
  WorkOrder work = {};
  work.rank = rank;
  work.world = shards.world;
  work.first_column = order.first_column;
  work.columns = order.columns;
  work.column_group = order.column_group;
  for (int r = 0; r < shards.world; ++r) work.tiles[r] = tiles_of(shards, r, tile_rows);
  // The more a piece has to load, the smaller it is.
  const int loads = (shards.world + 1) / 2 * kind.wire_vectors;
  work.parts = loads <= 1 ? 1 : (loads == 2 ? 2 : kMostParts);
  if (order.columns > 0)
    work.groups = (order.columns + order.column_group - 1) / order.column_group;
  const int last = order.columns - (work.groups - 1) * order.column_group;
  // The work after the last tiles is halved if there are warps enough, except work that raises
  // flags.
  const int own = work.tiles[rank].count;
  work.halves = !kind.spreads && own * last * work.pieces() < kind.warps ? 2 : 1;
  work.parts *= work.halves;
  int others = 0;
  for (int r = 0; r < shards.world; ++r)
    if (r != rank) others += work.tiles[r].count;
  work.sums = own * order.column_group * work.pieces();
  work.last_sums = own * last * work.pieces();
  work.fetches = kind.spreads ? others * order.column_group * work.pieces() : 0;
  return work;
}

}  // namespace plait::overlap::cuda
