#include "predict/device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace plait::predict {
namespace {

using Tiles = std::vector<Device::Tile>;

// Smaller tiles reuse less of what they read.
const Tiles& gpu_tiles() {
  static const Tiles tiles = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.92},
                              {64, 128, 0.8},  {128, 64, 0.8},  {64, 64, 0.65}};
  return tiles;
}

constexpr base::Nanoseconds kMicrosecond = base::kMicrosecond;

// Peaks of GPUs are those of data sheets: dense, SXM, the A100 with 80 GB. `attained` is what
// vendors' libraries reach on large products. `lost`: 15 of 132 units keep such a link busy
// (ParallelKittens).
Device h100() {
  return {.name = "h100",
          .peak_flops = 989e12,
          .attained = 0.72,
          .peak_memory = 3.35e12,
          .memory_share = 0.9,
          .units = 132,
          .tiles = gpu_tiles(),
          .launch = 4 * kMicrosecond,
          .memory_launch = 100,
          .in_background = true,
          .lost = 0.11,
          .poll = kMicrosecond};
}

Device h200() {
  Device device = h100();
  device.name = "h200";
  device.peak_memory = 4.8e12;
  return device;
}

Device a100() {
  return {.name = "a100",
          .peak_flops = 312e12,
          .attained = 0.85,
          .peak_memory = 2.039e12,
          .memory_share = 0.9,
          .units = 108,
          .tiles = gpu_tiles(),
          .launch = 4 * kMicrosecond,
          .memory_launch = 100,
          .in_background = true,
          .lost = 0.14,
          .poll = kMicrosecond};
}

// 364 TFLOP/s, of which a product attains 0.8, as ATB's tiling assumes; vector cores copy and sum.
Device ascend_910b() {
  return {.name = "ascend-910b",
          .peak_flops = 364e12,
          .attained = 0.8,
          .peak_memory = 1.6e12,
          .memory_share = 0.85,
          .units = 24,
          .tiles = {{128, 256, 1.0}, {256, 128, 1.0}, {128, 128, 0.85}},
          .launch = 10 * kMicrosecond,
          .memory_launch = 200,
          .in_background = true,
          .lost = 0.05,
          .poll = 2 * kMicrosecond};
}

// Two cores of a server of 2025; measured figures replace them.
Device cpu() {
  return {.name = "cpu",
          .peak_flops = 1e12,
          .attained = 0.9,
          .peak_memory = 20e9,
          .memory_share = 1.0,
          .units = 1,
          .tiles = {{1, 64, 1.0}},
          .launch = kMicrosecond,
          .memory_launch = kMicrosecond};
}

const std::array<Device, 5>& all() {
  static const std::array<Device, 5> devices = {h100(), h200(), a100(), ascend_910b(), cpu()};
  return devices;
}

bool is_empty(const ProductSize& size) {
  return size.rows == 0 || size.columns == 0 || size.k == 0;
}

double tiles_of(const ProductSize& size, const Device::Tile& tile) {
  const auto count = [](std::int64_t length, std::int64_t side) {
    return std::ceil(static_cast<double>(length) / static_cast<double>(side));
  };
  return count(size.rows, tile.rows) * count(size.columns, tile.columns);
}

// The nanoseconds of a round, in which each unit multiplies one tile.
double round_of(const Device& device, const Device::Tile& tile, std::int64_t k) {
  const double multiplied = 2.0 * static_cast<double>(tile.rows) *
                            static_cast<double>(tile.columns) * static_cast<double>(k);
  return multiplied * device.units / (device.flops() * tile.share) * 1e9;
}

}  // namespace

std::span<const Device> devices() { return all(); }

Device find_device(std::string_view name) {
  std::string names;
  for (const Device& device : all()) {
    if (device.name == name) return device;
    names += (names.empty() ? "" : ", ") + device.name;
  }
  base::fail(Code::invalid_argument, "there is no device ", name, "; there are ", names);
}

double product_time(const Device& device, const ProductSize& size, const ProductBytes& bytes) {
  return part_time(device, size, size, bytes);
}

// Takes the tile with which the part is fastest, such as one that its rows and columns fill. Parts
// share the rounds of the kernel, whose last round may not be full.
double part_time(const Device& device, const ProductSize& part, const ProductSize& kernel,
                 const ProductBytes& bytes) {
  if (is_empty(part)) return 0;
  double multiplied = std::numeric_limits<double>::infinity();
  for (const Device::Tile& tile : device.tiles) {
    const double rounds = tiles_of(kernel, tile) / device.units;
    const double mine = tiles_of(part, tile) / device.units * std::ceil(rounds) / rounds;
    multiplied = std::min(multiplied, mine * round_of(device, tile, part.k));
  }
  const auto rows = static_cast<double>(part.rows);
  const auto columns = static_cast<double>(part.columns);
  const auto k = static_cast<double>(part.k);
  const double of_columns = columns / static_cast<double>(std::max(kernel.columns, part.columns));
  const double of_rows = rows / static_cast<double>(std::max(kernel.rows, part.rows));
  const double read = rows * k * bytes.x * of_columns + columns * k * bytes.weight * of_rows +
                      rows * columns * bytes.out;
  return std::max(multiplied, read / device.memory() * 1e9);
}

double group_time(const Device& device, const ProductSize& group, const ProductSize& kernel,
                  const ProductBytes& bytes) {
  if (is_empty(group)) return 0;
  // part_time() lets a part read as much of the weight as it has of the kernel's rows.
  ProductBytes own = bytes;
  own.weight *= static_cast<double>(kernel.rows) / static_cast<double>(group.rows);
  return part_time(device, group, kernel, own);
}

double grouped_time(const Device& device, std::span<const std::int64_t> rows, std::int64_t columns,
                    std::int64_t k, const ProductBytes& bytes) {
  const ProductSize kernel = {std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), columns,
                              k};
  auto time = static_cast<double>(device.launch);
  for (const std::int64_t own : rows) time += group_time(device, {own, columns, k}, kernel, bytes);
  return time;
}

std::string describe(const Device& device) {
  std::string text = base::sentence(
      "device ", device.name, ": ", device.flops() / 1e12, " TFLOP/s (", 100 * device.attained,
      " % of ", device.peak_flops / 1e12, "), memory ", device.memory() / 1e9, " GB/s (",
      100 * device.memory_share, " % of ", device.peak_memory / 1e9, ")");
  text += base::sentence("\na product starts after ", base::show_duration(device.launch));
  if (device.units > 1) text += base::sentence(" and takes rounds of ", device.units, " tiles");
  text +=
      base::sentence("\ncopies and sums: ", base::show_duration(device.memory_launch), " each and ",
                     device.memory() / 1e9, " GB/s, ",
                     device.in_background ? "during the product" : "by the units that multiply");
  if (device.lost > 0)
    text += base::sentence("\na product loses ", 100 * device.lost, " % while chunks are sent");
  return text;
}

}  // namespace plait::predict
