#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "plait/error.h"
#include "plait/trace.h"

namespace plait {
namespace {

TEST(EstimateOffset, IsTheMiddleOfTheShortestRoundTrip) {
  const std::vector<ClockSample> samples = {{.asked = 1000, .answered = 9000, .heard = 3000},
                                            {.asked = 5000, .answered = 10'150, .heard = 5200},
                                            {.asked = 8000, .answered = 20'000, .heard = 9000}};
  const ClockOffset offset = estimate_clock_offset(samples);
  EXPECT_EQ(offset.nanoseconds, 5050);
  EXPECT_EQ(offset.uncertainty, 101);
}

TEST(EstimateOffset, TheTruthLiesWithinTheUncertainty) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> queue(1.0 / 20'000);
  for (int round = 0; round < 1000; ++round) {
    const auto truth = static_cast<std::int64_t>(random() % 2'000'000'000'000) - 1'000'000'000'000;
    const std::int64_t wire = 2000 + static_cast<std::int64_t>(random() % 8000);
    std::vector<ClockSample> samples;
    for (std::int64_t sent = 0; sent < 32'000'000; sent += 1'000'000) {
      // Queues differ in the two directions, as they always do.
      const std::int64_t there = sent + wire + static_cast<std::int64_t>(queue(random));
      const std::int64_t back = there + wire + static_cast<std::int64_t>(3 * queue(random));
      samples.push_back({.asked = sent, .answered = there + truth, .heard = back});
    }
    const ClockOffset offset = estimate_clock_offset(samples);
    ASSERT_LE(std::abs(offset.nanoseconds - truth), offset.uncertainty);
  }
}

TEST(EstimateOffset, RefusesWhatCannotBe) {
  EXPECT_THROW(estimate_clock_offset({}), Error);
  const std::vector<ClockSample> backwards = {{.asked = 10, .answered = 0, .heard = 9}};
  EXPECT_THROW(estimate_clock_offset(backwards), Error);
}

}  // namespace
}  // namespace plait
