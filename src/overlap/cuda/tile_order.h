// The order in which a GPU multiplies its tiles, and the ranks that own their rows.
//
// Rows are cut into units: as many rows as a cluster of blocks multiplies at once. Neighbouring
// units, in a circle, are this rank's own; the others belong to its peers. For each group of
// columns, either the own units are all finished before the others begin, or the other way round.
// The others are taken from all peers by turns, because each peer has a link of its own. Within
// both parts the units are taken in runs of at most `group`, and a run's tiles go column by column,
// so that their operands stay in the L2 cache. The last units can have shorter runs, so that little
// is left to multiply when their rows arrive.
//
// The functions are compiled for the CPU as well, where the tests check them.
#pragma once

#ifdef __CUDACC__
#define PLAIT_ANYWHERE __host__ __device__
#else
#define PLAIT_ANYWHERE
#endif

namespace plait::overlap::cuda {

// Ranks of one communicator on GPUs: a kernel keeps an address of each.
inline constexpr int kMostRanks = 8;

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
  int first_own = 0;  // own units are neighbours, in a circle
  int own = 0;
  bool own_leads = true;
  int turns = 1;  // the other units are taken from so many equal parts of the circle by turns
  int group = 8;
  int late = 0;  // so many of the last units are taken in runs of at most `late_group`
  int late_group = 8;
  // The order walks through so many of its units, and leaves out those that come before.
  int skipped = 0;
  int taken = units;
  int first_column = 0;
  int column_group = columns;

  PLAIT_ANYWHERE int count() const { return taken * columns; }

  // Units that come first, of all.
  PLAIT_ANYWHERE int lead() const { return own_leads ? own : units - own; }

  // The tile at this place of the order.
  PLAIT_ANYWHERE TileAt at(int place) const {
    const int walk = place / (taken * column_group);
    const int column = walk * column_group;
    const int width = column_group < columns - column ? column_group : columns - column;
    const int in_walk = place - walk * taken * column_group;
    const int leading = step_of(lead());
    if (in_walk < leading * width)
      return in_part(in_walk, 0, leading, group, first_column + column, width);
    const int early = step_of(units - late < lead() ? lead() : units - late);
    if (in_walk < early * width)
      return in_part(in_walk - leading * width, leading, early, group, first_column + column,
                     width);
    return in_part(in_walk - early * width, early, taken, late_group, first_column + column, width);
  }

  // The unit that is taken after so many others.
  PLAIT_ANYWHERE int unit_at(int step) const {
    const int position = skipped + step;
    const bool leads = position < lead();
    const int in_part = leads ? position : position - lead();
    const int offset = leads == own_leads ? in_part : own + by_turns(in_part);
    return (first_own + offset) % units;
  }

 private:
  // The step at which so many units have been taken or left out.
  PLAIT_ANYWHERE int step_of(int position) const {
    const int step = position - skipped;
    return step < 0 ? 0 : (step < taken ? step : taken);
  }

  // Units from step `begin` to step `end`, in runs.
  PLAIT_ANYWHERE TileAt in_part(int place, int begin, int end, int most, int column,
                                int width) const {
    const int run = begin + place / (most * width) * most;
    const int height = most < end - run ? most : end - run;
    const int in_run = place % (most * width);
    return {.unit = unit_at(run + in_run % height), .column = column + in_run / height};
  }

  // The position in the circle of the unit at this place of the others, counted from the first of
  // them.
  PLAIT_ANYWHERE int by_turns(int place) const {
    const int others = units - own;
    const int each = others / turns;
    const int larger = others % turns;  // parts with one unit more
    const int part = place < each * turns ? place % turns : place - each * turns;
    const int in_part = place < each * turns ? place / turns : each;
    return part * each + (part < larger ? part : larger) + in_part;
  }
};

// For each group of columns, tiles of other ranks' rows lead; those with rows of this rank follow.
inline TileOrder compute_first_order(const Shards& shards, int rank, int unit_rows, int columns) {
  const int units = (shards.m + unit_rows - 1) / unit_rows;
  const int begin = shards.begin(rank);
  const int end = shards.end(rank);
  const int own_begin = begin / unit_rows;
  const int own_end = end > begin ? (end + unit_rows - 1) / unit_rows : own_begin;
  TileOrder order = {.units = units,
                     .columns = columns,
                     .first_own = own_begin,
                     .own = own_end - own_begin,
                     .own_leads = false,
                     .turns = shards.world > 1 ? shards.world - 1 : 1};
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
  TileOrder order = {.units = units,
                     .columns = columns,
                     .first_own = units > 0 ? begin % units : 0,
                     .own = end > begin ? end - begin : 0,
                     .turns = shards.world > 1 ? shards.world - 1 : 1};
  return order;
}

}  // namespace plait::overlap::cuda
