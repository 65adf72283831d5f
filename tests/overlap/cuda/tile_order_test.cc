#include "overlap/cuda/tile_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace plait::overlap::cuda {
namespace {

constexpr int kUnitRows = 256;

struct Size {
  int m;
  int world;
  int columns;
};

// Shards that are empty, smaller than a unit, end within one, and are many units long.
std::vector<Size> sizes() {
  std::vector<Size> all;
  for (const int m : {0, 1, 5, 255, 256, 257, 700, 1024, 1537, 4096, 10000})
    for (const int world : {1, 2, 3, 5, 8})
      for (const int columns : {1, 3, 8, 9, 23}) all.push_back({m, world, columns});
  return all;
}

std::string text(const Size& size, int rank) {
  return "m=" + std::to_string(size.m) + " world=" + std::to_string(size.world) +
         " columns=" + std::to_string(size.columns) + " rank=" + std::to_string(rank);
}

template <class Check>
void for_each_rank(Check&& check) {
  for (const Size& size : sizes()) {
    const Shards shards = {.m = size.m, .world = size.world};
    for (int rank = 0; rank < size.world; ++rank) {
      SCOPED_TRACE(text(size, rank));
      check(shards, rank, size.columns);
      if (testing::Test::HasFailure()) return;
    }
  }
}

using Tiles = std::set<std::pair<int, int>>;

// Adds the order's tiles; false if one of them is there already.
bool add_all(const TileOrder& order, Tiles& tiles) {
  for (int place = 0; place < order.count(); ++place) {
    const TileAt tile = order.at(place);
    if (!tiles.emplace(tile.unit, tile.column).second) return false;
  }
  return true;
}

Tiles rectangle(int units, int columns) {
  Tiles tiles;
  for (int unit = 0; unit < units; ++unit)
    for (int column = 0; column < columns; ++column) tiles.emplace(unit, column);
  return tiles;
}

void expect_all_tiles_once(const std::vector<TileOrder>& parts, int units, int columns) {
  Tiles tiles;
  for (const TileOrder& part : parts) EXPECT_TRUE(add_all(part, tiles)) << "a tile comes twice";
  EXPECT_EQ(tiles, rectangle(units, columns));
}

int units_of(const Shards& shards) { return (shards.m + kUnitRows - 1) / kUnitRows; }

bool has_rows_of(const Shards& shards, int rank, int unit) {
  const int begin = std::max(shards.begin(rank), unit * kUnitRows);
  const int end = std::min(shards.end(rank), (unit + 1) * kUnitRows);
  return begin < end;
}

bool has_only_rows_of(const Shards& shards, int rank, int unit) {
  const int end = std::min(shards.m, (unit + 1) * kUnitRows);
  return shards.begin(rank) <= unit * kUnitRows && end <= shards.end(rank);
}

// Calls check(tile, place within the group of columns, width of the group).
template <class Check>
void for_each_tile(const TileOrder& order, Check&& check) {
  int place = 0;
  for (int column = 0; column < order.columns; column += order.column_group) {
    const int width = std::min(order.column_group, order.columns - column);
    for (int within = 0; within < order.taken * width; ++within, ++place)
      check(order.at(place), within, width);
  }
  EXPECT_EQ(place, order.count());
}

TEST(ShardsTest, CutsAllRowsIntoBalancedShards) {
  for (const int m : {0, 1, 7, 8, 9, 1000}) {
    for (int world = 1; world <= 8; ++world) {
      const Shards shards = {.m = m, .world = world};
      EXPECT_EQ(shards.begin(0), 0);
      EXPECT_EQ(shards.end(world - 1), m);
      for (int rank = 0; rank < world; ++rank) {
        const int rows = shards.end(rank) - shards.begin(rank);
        EXPECT_EQ(rows, m / world + (rank < m % world ? 1 : 0));
      }
    }
  }
}

TEST(ShardsTest, FindsTheOwnerOfEveryRow) {
  for (const int m : {1, 7, 8, 9, 1000}) {
    for (int world = 1; world <= 8; ++world) {
      const Shards shards = {.m = m, .world = world};
      for (int rank = 0; rank < world; ++rank)
        for (int row = shards.begin(rank); row < shards.end(rank); ++row)
          EXPECT_EQ(shards.owner(row), rank) << "row " << row << " of " << m << ", " << world;
    }
  }
}

TEST(TileOrderTest, TakesEveryTileOnceInEveryGrouping) {
  for (const int units : {1, 2, 7, 16, 33}) {
    for (const int columns : {1, 5, 8, 20}) {
      for (const int group : {1, 2, 8, 64}) {
        for (const int column_group : {1, 8, columns}) {
          for (int first = 0; first < units; first += 3) {
            const TileOrder order = {.units = units,
                                     .columns = columns,
                                     .first_own = first,
                                     .own = units / 2,
                                     .own_leads = first % 2 == 0,
                                     .turns = 1 + first % 5,
                                     .group = group,
                                     .late = first % 4,
                                     .late_group = 1 + first % 3,
                                     .column_group = column_group};
            expect_all_tiles_once({order}, units, columns);
          }
        }
      }
    }
  }
}

TEST(TileOrderTest, TakesOnlyTheUnitsAndColumnsOfAPart) {
  const TileOrder order = {.units = 5,
                           .columns = 2,
                           .first_own = 3,
                           .own = 2,
                           .skipped = 1,
                           .taken = 3,
                           .first_column = 7,
                           .column_group = 2};
  Tiles tiles;
  EXPECT_TRUE(add_all(order, tiles));
  EXPECT_EQ(tiles, (Tiles{{4, 7}, {4, 8}, {0, 7}, {0, 8}, {1, 7}, {1, 8}}));
}

TEST(TileOrderTest, GoesColumnByColumnWithinARun) {
  const TileOrder order = {.units = 4, .columns = 2, .group = 2};
  const std::vector<std::pair<int, int>> expected = {{0, 0}, {1, 0}, {0, 1}, {1, 1},
                                                     {2, 0}, {3, 0}, {2, 1}, {3, 1}};
  for (int place = 0; place < order.count(); ++place) {
    const TileAt tile = order.at(place);
    EXPECT_EQ(std::pair(tile.unit, tile.column), expected[static_cast<std::size_t>(place)]);
  }
}

TEST(TileOrderTest, FinishesTheLeadOfEachGroupOfColumnsFirst) {
  for (int own = 0; own <= 11; ++own) {
    for (const bool own_leads : {false, true}) {
      const TileOrder order = {.units = 11,
                               .columns = 20,
                               .first_own = 9,
                               .own = own,
                               .own_leads = own_leads,
                               .turns = 3,
                               .group = 4,
                               .column_group = 8};
      for_each_tile(order, [&](TileAt tile, int within, int width) {
        const bool is_own = (tile.unit - order.first_own + order.units) % order.units < own;
        EXPECT_EQ(is_own == own_leads, within < order.lead() * width)
            << "unit " << tile.unit << ", own " << own;
      });
    }
  }
}

TEST(TileOrderTest, TakesTheLastUnitsInShorterRuns) {
  const TileOrder order = {
      .units = 5, .columns = 2, .group = 3, .late = 2, .late_group = 1, .column_group = 2};
  const std::vector<std::pair<int, int>> expected = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1},
                                                     {2, 1}, {3, 0}, {3, 1}, {4, 0}, {4, 1}};
  for (int place = 0; place < order.count(); ++place) {
    const TileAt tile = order.at(place);
    EXPECT_EQ(std::pair(tile.unit, tile.column), expected[static_cast<std::size_t>(place)]);
  }
}

TEST(TileOrderTest, TakesTheOtherUnitsByTurns) {
  const TileOrder order = {.units = 9, .columns = 1, .first_own = 1, .own = 2, .turns = 3};
  const std::vector<int> expected = {1, 2, 3, 6, 8, 4, 7, 0, 5};
  for (int step = 0; step < order.units; ++step)
    EXPECT_EQ(order.unit_at(step), expected[static_cast<std::size_t>(step)]) << "step " << step;
}

TEST(ComputeFirstOrderTest, TakesEveryTileOnce) {
  for_each_rank([](const Shards& shards, int rank, int columns) {
    expect_all_tiles_once({compute_first_order(shards, rank, kUnitRows, columns)}, units_of(shards),
                          columns);
  });
}

TEST(ComputeFirstOrderTest, TakesOwnTilesLastInEachGroupOfColumns) {
  for_each_rank([](const Shards& shards, int rank, int columns) {
    const TileOrder order = compute_first_order(shards, rank, kUnitRows, columns);
    for_each_tile(order, [&](TileAt tile, int within, int width) {
      EXPECT_EQ(has_rows_of(shards, rank, tile.unit), within >= order.lead() * width)
          << "unit " << tile.unit;
    });
  });
}

TEST(ComputeFirstOrderTest, TakesEveryTileOnceInParts) {
  for_each_rank([](const Shards& shards, int rank, int columns) {
    for (int count = 1; count <= std::min(columns, 4); ++count) {
      std::vector<TileOrder> parts;
      for (int part = 0; part < count; ++part) {
        TileOrder& order =
            parts.emplace_back(compute_first_order(shards, rank, kUnitRows, columns));
        order.first_column = columns * part / count;
        order.columns = columns * (part + 1) / count - order.first_column;
        order.column_group = order.columns;
      }
      expect_all_tiles_once(parts, units_of(shards), columns);
    }
  });
}

TEST(CommFirstOrderTest, TakesEveryTileOnce) {
  for_each_rank([](const Shards& shards, int rank, int columns) {
    expect_all_tiles_once({comm_first_order(shards, rank, kUnitRows, columns)}, units_of(shards),
                          columns);
  });
}

TEST(CommFirstOrderTest, TakesTilesOfOwnRowsFirst) {
  for_each_rank([](const Shards& shards, int rank, int columns) {
    const TileOrder order = comm_first_order(shards, rank, kUnitRows, columns);
    for_each_tile(order, [&](TileAt tile, int within, int width) {
      EXPECT_EQ(has_only_rows_of(shards, rank, tile.unit), within < order.lead() * width)
          << "unit " << tile.unit;
    });
  });
}

TEST(CommFirstOrderTest, TakesEveryTileOnceInParts) {
  for_each_rank([](const Shards& shards, int rank, int columns) {
    const TileOrder whole = comm_first_order(shards, rank, kUnitRows, columns);
    for (int count = 1; count <= std::min(whole.units, 4); ++count) {
      std::vector<TileOrder> parts(static_cast<std::size_t>(count), whole);
      for (int part = 0; part < count; ++part) {
        TileOrder& order = parts[static_cast<std::size_t>(part)];
        const int begin = whole.units * part / count;
        order.skipped = begin;
        order.taken = whole.units * (part + 1) / count - begin;
      }
      expect_all_tiles_once(parts, whole.units, columns);
    }
  });
}

}  // namespace
}  // namespace plait::overlap::cuda
