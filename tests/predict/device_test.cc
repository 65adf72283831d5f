#include "predict/device.h"

#include <gtest/gtest.h>

#include <string>

#include "plait/error.h"
#include "predict/network.h"
#include "tensor/sentence_of.h"

namespace plait::predict {
namespace {

// Ten units, each of which multiplies a tile of 8 by 8 by 1 in 128 nanoseconds.
Device ten_units() {
  Device device = find_device("h100");
  device.peak_flops = 10e9;
  device.attained = 1;
  device.peak_memory = 1e18;
  device.units = 10;
  device.tiles = {{8, 8, 1.0}};
  return device;
}

constexpr ProductBytes kBytes = {.x = 2, .weight = 2, .out = 2};

TEST(Device, MultipliesInRoundsOfTiles) {
  const Device device = ten_units();
  EXPECT_DOUBLE_EQ(product_time(device, {8, 80, 1}, kBytes), 128);
  EXPECT_DOUBLE_EQ(product_time(device, {8, 81, 1}, kBytes), 256);
  EXPECT_DOUBLE_EQ(product_time(device, {8, 8, 1}, kBytes), 128);
  EXPECT_DOUBLE_EQ(product_time(device, {0, 8, 1}, kBytes), 0);
}

// 25 tiles take three rounds. However they are divided, the parts take as long as the whole.
TEST(Device, MultipliesPartsOfAKernelInItsRounds) {
  const Device device = ten_units();
  const ProductSize kernel = {40, 40, 1};
  EXPECT_DOUBLE_EQ(product_time(device, kernel, kBytes), 3 * 128);
  EXPECT_DOUBLE_EQ(part_time(device, {40, 8, 1}, kernel, kBytes) * 5, 3 * 128);
  EXPECT_DOUBLE_EQ(part_time(device, {8, 40, 1}, kernel, kBytes) * 5, 3 * 128);
  // half of a tile takes as long as one
  EXPECT_GT(part_time(device, {40, 4, 1}, kernel, kBytes) * 10, 3 * 128);
}

TEST(Device, ReadsTheOperandsOfAKernelOnce) {
  Device device = ten_units();
  device.peak_memory = 1e6;
  const ProductSize kernel = {40, 80, 10};
  const double whole = product_time(device, kernel, kBytes);
  EXPECT_NEAR(part_time(device, {40, 8, 10}, kernel, kBytes) * 10, whole, 1e-9 * whole);
  EXPECT_NEAR(part_time(device, {8, 80, 10}, kernel, kBytes) * 5, whole, 1e-9 * whole);
}

TEST(Device, TakesTheTileThatSuitsBest) {
  Device device = ten_units();
  device.tiles.push_back({4, 4, 0.5});
  EXPECT_DOUBLE_EQ(product_time(device, {8, 80, 1}, kBytes), 128);
  EXPECT_DOUBLE_EQ(product_time(device, {4, 40, 1}, kBytes), 64);
}

TEST(Device, ReadsItsOperands) {
  Device device = ten_units();
  device.peak_memory = 1e9;
  device.memory_share = 0.5;
  EXPECT_DOUBLE_EQ(product_time(device, {1, 100, 10}, {.x = 2, .weight = 1, .out = 4}),
                   2 * (20 + 1000 + 400));
}

TEST(Device, SaysWhatItAssumes) {
  for (const Device& device : devices()) {
    EXPECT_EQ(find_device(device.name).name, device.name);
    EXPECT_NE(describe(device).find(device.name), std::string::npos);
    EXPECT_LE(device.attained, 1);
    EXPECT_GT(device.flops() * device.memory(), 0);
  }
  EXPECT_EQ(sentence_of([] { find_device("abacus"); }),
            "there is no device abacus; there are h100, h200, a100, ascend-910b, cpu");
}

TEST(Network, HasANameOrFigures) {
  for (const NamedNetwork& one : networks()) {
    EXPECT_EQ(find_network(one.name).wiring, one.wiring);
    EXPECT_LT(find_network(one.name).link.bytes_per_second, one.peak);
  }
  const Network own = find_network("8gbit,3us");
  EXPECT_EQ(own.link, (Link{.bytes_per_second = 1e9, .latency_ns = 3000}));
  EXPECT_EQ(own.wiring, Wiring::ports);
  EXPECT_THROW(find_network("string"), Error);
}

}  // namespace
}  // namespace plait::predict
