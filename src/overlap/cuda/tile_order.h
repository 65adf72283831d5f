// The order in which a GPU multiplies its tiles, and the ranks that own their rows.
//
// Rows are cut into units: as many rows as a cluster of blocks multiplies at once. For each group
// of columns the order walks through the units in a circle from `first` on. The `lead` units that
// come first are all finished before the others begin. Within both parts the units are taken in
// runs of at most `group`, and a run's tiles go column by column, so that their operands stay in
// the L2 cache.
//
// The functions are compiled for the CPU as well, where the tests check them.
#pragma once

#ifdef __CUDACC__
#define PLAIT_ANYWHERE __host__ __device__
#else
#define PLAIT_ANYWHERE
#endif

namespace plait::overlap::cuda {

// Rows of a matrix, cut into balanced shards: the first (m mod world) ranks own one more.
struct Shards {
  int m;
  int world;

  PLAIT_ANYWHERE int begin(int rank) const {
    const int extra = m % world;
    return rank * (m / world) + (rank < extra ? rank : extra);
  }
  PLAIT_ANYWHERE int end(int rank) const { return begin(rank + 1); }

  // The rank that owns the row.
  PLAIT_ANYWHERE int owner(int row) const {
    const int base = m / world;
    const int extra = m % world;
    const int large = extra * (base + 1);  // rows of the ranks that own one more
    return row < large ? row / (base + 1) : extra + (row - large) / base;
  }
};

struct TileAt {
  int unit;
  int column;  // a number of tiles
};

struct TileOrder {
  int units;
  int columns;
  int first = 0;
  int lead = 0;
  int taken = units;  // units that the order walks through
  int group = 8;
  int first_column = 0;
  int column_group = columns;

  PLAIT_ANYWHERE int count() const { return taken * columns; }

  // The tile at this place of the order.
  PLAIT_ANYWHERE TileAt at(int place) const {
    const int walk = place / (taken * column_group);
    const int column = walk * column_group;
    const int width = column_group < columns - column ? column_group : columns - column;
    return in_walk(place - walk * taken * column_group, first_column + column, width);
  }

 private:
  PLAIT_ANYWHERE TileAt in_walk(int place, int column, int width) const {
    for (int begin = 0; begin < taken;) {
      const int unit = (first + begin) % units;
      const int height = height_of_run(begin, unit);
      if (place < height * width)
        return {.unit = unit + place % height, .column = column + place / height};
      place -= height * width;
      begin += height;
    }
    return {.unit = units, .column = 0};
  }

  PLAIT_ANYWHERE int height_of_run(int begin, int unit) const {
    const int half = begin < lead ? lead - begin : taken - begin;
    const int aligned = group - unit % group;
    const int circle = units - unit;
    const int height = half < aligned ? half : aligned;
    return height < circle ? height : circle;
  }
};

// For each group of columns, tiles of other ranks' rows lead; those with rows of this rank follow.
inline TileOrder compute_first_order(const Shards& shards, int rank, int unit_rows, int columns) {
  const int units = (shards.m + unit_rows - 1) / unit_rows;
  const int begin = shards.begin(rank);
  const int end = shards.end(rank);
  const int own_begin = begin / unit_rows;
  const int own_end = end > begin ? (end + unit_rows - 1) / unit_rows : own_begin;
  const int own = own_end - own_begin;
  TileOrder order = {.units = units,
                     .columns = columns,
                     .first = units > 0 ? own_end % units : 0,
                     .lead = units - own};
  // With several groups, sums are finished throughout the call, not only at its end.
  constexpr int kGroup = 8;
  if (shards.world > 1 && columns > kGroup) order.column_group = kGroup;
  return order;
}

// Tiles of this rank's rows alone lead; the others follow in the order in which their rows come.
inline TileOrder comm_first_order(const Shards& shards, int rank, int unit_rows, int columns) {
  const int units = (shards.m + unit_rows - 1) / unit_rows;
  const int begin = (shards.begin(rank) + unit_rows - 1) / unit_rows;
  const bool at_end = shards.end(rank) == shards.m;
  const int end = at_end ? units : shards.end(rank) / unit_rows;
  const int largest_shard = (shards.m + shards.world - 1) / shards.world;
  const int per_shard = largest_shard / unit_rows;
  TileOrder order = {.units = units,
                     .columns = columns,
                     .first = units > 0 ? begin % units : 0,
                     .lead = end > begin ? end - begin : 0};
  order.group = per_shard < 1 ? 1 : (per_shard < order.group ? per_shard : order.group);
  return order;
}

}  // namespace plait::overlap::cuda
