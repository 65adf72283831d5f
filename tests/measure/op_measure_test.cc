#include "measure/op_measure.h"

#include <gtest/gtest.h>

namespace plait::measure {
namespace {

// A product of 100 ms and a collective of 40 ms over a link.
OpMeasurement measured() {
  OpMeasurement result;
  result.transport = "shm";
  result.link = parse_link("1gbit");
  result.product.median = 100;
  result.collective.median = 40;
  return result;
}

TEST(Efficiencies, AreOfWhatTheIdealHides) {
  const OpMeasurement result = measured();
  EXPECT_DOUBLE_EQ(result.efficiency(140, 140).value(), 0);
  EXPECT_DOUBLE_EQ(result.efficiency(110, 140).value(), 0.75);
  EXPECT_DOUBLE_EQ(result.efficiency(100, 140).value(), 1);
}

TEST(Efficiencies, AreNotOfNoise) {
  OpMeasurement result = measured();
  result.collective.median = 4;
  EXPECT_FALSE(result.efficiency(101, 101.9));
  EXPECT_TRUE(result.efficiency(101, 102.1));
}

TEST(Efficiencies, AreNotOfASerialRunThatIsShorterThanItsParts) {
  EXPECT_FALSE(measured().efficiency(105, 111));
  EXPECT_TRUE(measured().efficiency(105, 113));
}

TEST(Efficiencies, AreNotOfMoreThanTheShorterOneAndAHalf) {
  EXPECT_TRUE(measured().efficiency(110, 159));
  EXPECT_FALSE(measured().efficiency(110, 161));
}

TEST(Efficiencies, AreNotOfMemory) {
  OpMeasurement result = measured();
  result.link = std::nullopt;
  EXPECT_FALSE(result.efficiency(110, 140));
  result.transport = "mpi";
  EXPECT_TRUE(result.efficiency(110, 140));
}

}  // namespace
}  // namespace plait::measure
