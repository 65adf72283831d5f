// The network between hosts, as its ranks measure it (tune/network.h).
#include "tune/network.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plait::tune {
namespace {

constexpr double kMs = 1e6;

// 250 kB each over a cable of 1 Gbit/s, whose latency is 25 us.
LinkSamples quiet() {
  return {.short_ones = {.times = {26e3, 25e3, 31e3, 25e3, 27e3}},
          .long_ones = {.times = {2.02 * kMs, 2.03 * kMs, 2.02 * kMs, 2.03 * kMs, 2.02 * kMs,
                                  2.04 * kMs, 2.03 * kMs}},
          .bytes = 250e3};
}

// Another program delays a rank, and the network has saved up for a burst meanwhile.
LinkSamples disturbed() {
  LinkSamples samples = quiet();
  samples.short_ones.times[1] = 4 * kMs;
  samples.short_ones.times[3] = 0.2 * kMs;
  samples.long_ones.times[1] = 6.5 * kMs;
  samples.long_ones.times[2] = 0.3 * kMs;
  samples.long_ones.times[5] = 0.4 * kMs;
  return samples;
}

Link link(const LinkSamples& samples) { return about(link_of(samples).figures); }

TEST(Network, IsTheSameWhereSomeTransfersAreDisturbed) {
  EXPECT_EQ(link(quiet()), parse_link("1gbit,22us"));
  EXPECT_EQ(link(disturbed()), link(quiet()));
  const plan::MeasuredLink measured = link_of(disturbed());
  EXPECT_NEAR(measured.figures.bytes_per_ns, 0.125, 0.002);
  EXPECT_EQ(measured.figures.latency, 26e3);
}

TEST(Network, SaysHowMuchItWasDisturbed) {
  const plan::MeasuredLink before = link_of(quiet());
  EXPECT_LT(before.rate_spread, 1.02);
  EXPECT_LT(before.latency_spread, 1.1);
  LinkSamples samples = disturbed();
  samples.long_ones.times[0] = 6 * kMs;
  samples.long_ones.times[3] = samples.long_ones.times[4] = 5 * kMs;
  const plan::MeasuredLink after = link_of(samples);
  EXPECT_GT(after.rate_spread, 2);
  // Four transfers are delayed, so that the median is far off, and the stored rate stays.
  EXPECT_LT(after.figures.bytes_per_ns, before.figures.bytes_per_ns / 2);
  plan::KnownLinks links = {{"cable", before.figures}};
  EXPECT_EQ(add(links, "cable", after).bytes_per_ns, before.figures.bytes_per_ns);
}

// Its ranks share their processors with other programs all the time, so that transfers are alike.
TEST(Network, KeepsItsRateWhereAllTransfersAreDelayed) {
  const plan::MeasuredLink before = link_of(quiet());
  LinkSamples samples = quiet();
  for (double& one : samples.long_ones.times) one *= 4;
  for (double& one : samples.short_ones.times) one = 3 * kMs;
  samples.long_ones.delayed = samples.short_ones.delayed = 0.8;
  plan::KnownLinks links = {{"cable", before.figures}};
  EXPECT_EQ(add(links, "cable", link_of(samples)), before.figures);
  samples.long_ones.delayed = 0.2;
  EXPECT_LT(add(links, "cable", link_of(samples)).bytes_per_ns, before.figures.bytes_per_ns);
}

// The latencies that one cable had in different runs.
TEST(Network, HasOneStepForLatenciesOfOneCable) {
  for (const double latency : {17e3, 22e3, 25e3, 29e3})
    EXPECT_EQ(about({.latency = latency, .bytes_per_ns = 0.12}), parse_link("1gbit,22us"));
  EXPECT_EQ(about({.latency = 47e3, .bytes_per_ns = 0.12}), parse_link("1gbit,47us"));
  EXPECT_EQ(about({.latency = 9e3, .bytes_per_ns = 1.2}), parse_link("10gbit,10us"));
}

TEST(Network, MayBeOneTransferLong) {
  const plan::MeasuredLink slow = link_of(
      {.short_ones = {.times = {1 * kMs}}, .long_ones = {.times = {40 * kMs}}, .bytes = 1e6});
  EXPECT_NEAR(slow.figures.bytes_per_ns, 1.0 / 39, 1e-4);
  EXPECT_EQ(slow.rate_spread, 1);
}

}  // namespace
}  // namespace plait::tune
