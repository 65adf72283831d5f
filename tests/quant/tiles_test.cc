#include "quant/tiles.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "quant/weights.h"

namespace plait::quant {
namespace {

constexpr std::int64_t kN = kTileColumns + 5;
constexpr std::int64_t kK = kTileK + 7;
constexpr Tiling kTiling = {.n = kN, .k = kK, .threads = 1};

float numbered(std::int64_t column, std::int64_t k) {
  return static_cast<float>(column * 1000 + k);
}

TEST(Tiles, CoverEveryWeightOnce) {
  std::vector<int> seen(kN * kK);
  for_each_tile(kTiling, [&](const Tile& tile) {
    EXPECT_GT(tile.columns, 0);
    EXPECT_GT(tile.k_count, 0);
    for (std::int64_t c = tile.column; c < tile.column + tile.columns; ++c) {
      for (std::int64_t i = tile.k; i < tile.k + tile.k_count; ++i) ++seen.at(c * kK + i);
    }
  });
  EXPECT_EQ(seen, std::vector<int>(kN * kK, 1));
}

// The thread that comes first waits for the other one.
TEST(Tiles, AreSharedByThreadsColumnByColumn) {
  constexpr Tiling kLarge = {.n = 300, .k = 1000, .threads = 2};
  std::mutex mutex;
  std::condition_variable came;
  std::set<std::thread::id> threads;
  bool alone = false;
  struct Column {
    std::thread::id thread;
    std::int64_t k = 0;  // the k up to which it has been seen
  };
  std::vector<Column> columns(kLarge.n);
  for_each_tile(kLarge, [&](const Tile& tile) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    came.notify_all();
    const auto both = [&] { return threads.size() == 2; };
    alone = alone || !came.wait_for(lock, std::chrono::seconds(20), both);
    for (std::int64_t c = tile.column; c < tile.column + tile.columns; ++c) {
      Column& column = columns.at(static_cast<std::size_t>(c));
      if (tile.k == 0) column.thread = std::this_thread::get_id();
      EXPECT_EQ(column.thread, std::this_thread::get_id());
      EXPECT_EQ(column.k, tile.k);
      column.k = tile.k + tile.k_count;
    }
  });
  EXPECT_EQ(threads.size(), 2U);
  for (const Column& column : columns) EXPECT_EQ(column.k, kLarge.k);
}

TEST(Tiles, OfNothingAreNone) {
  const auto count = [](std::int64_t n, std::int64_t k) {
    int tiles = 0;
    for_each_tile({.n = n, .k = k, .threads = 1}, [&](const Tile&) { ++tiles; });
    return tiles;
  };
  EXPECT_EQ(count(0, std::int64_t{1} << 62), 0);
  EXPECT_EQ(count(std::int64_t{1} << 62, 0), 0);
}

TEST(Tiles, AreReadAlikeInBothLayoutsAndWrittenBack) {
  const auto block = std::make_unique<Block<float>>();
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const Lie lie = {.layout = layout, .gap = 3};
    const OwnedWeight weight = make_weight(kN, kK, numbered, lie);
    const OwnedWeight copy = empty_weight(kN, kK, lie);
    for_each_tile(kTiling, [&](const Tile& tile) {
      read_tile(weight.view(), tile, *block);
      for (std::int64_t c = 0; c < tile.columns; ++c) {
        for (std::int64_t i = 0; i < tile.k_count; ++i) {
          ASSERT_EQ(block->row(c)[i], numbered(tile.column + c, tile.k + i));
        }
      }
      write_tile(*block, tile, copy.out, layout);
    });
    EXPECT_EQ(bytes_of(copy.out), bytes_of(weight.out)) << name(layout);
  }
}

TEST(Tiles, ReadPackedValuesOfEveryFormat) {
  const auto block = std::make_unique<Block<std::int8_t>>();
  for (const Format* format : formats()) {
    const auto value_of = [&](std::int64_t row, std::int64_t i) {
      return static_cast<std::int8_t>(format->lowest + (row * 3 + i) % (format->steps() + 1));
    };
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const bool out_in = layout == WeightLayout::out_in;
      const std::int64_t rows = out_in ? kN : kK;
      const std::int64_t cols = out_in ? kK : kN;
      const Buffer buffer = Buffer::for_tensor(Dtype::s8, rows, format->row_bytes(cols));
      const TensorView packed = buffer.view(Dtype::s8, rows, format->row_bytes(cols));
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<std::int8_t> values(static_cast<std::size_t>(cols));
        for (std::int64_t i = 0; i < cols; ++i) {
          values[static_cast<std::size_t>(i)] = value_of(row, i);
        }
        format->pack(values.data(), cols, static_cast<std::int8_t*>(packed.row(row)));
      }
      for_each_tile(kTiling, [&](const Tile& tile) {
        read_values({.view = packed, .layout = layout}, *format, tile, *block);
        for (std::int64_t c = 0; c < tile.columns; ++c) {
          for (std::int64_t i = 0; i < tile.k_count; ++i) {
            const std::int64_t column = tile.column + c;
            const std::int64_t k = tile.k + i;
            ASSERT_EQ(block->row(c)[i], out_in ? value_of(column, k) : value_of(k, column));
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace plait::quant
