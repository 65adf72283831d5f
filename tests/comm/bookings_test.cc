#include "simulation/bookings.h"

#include <gtest/gtest.h>

namespace plait::comm::modelled {
namespace {

TEST(Bookings, TakeTheFirstGapThatIsLongEnough) {
  Bookings bookings;
  EXPECT_EQ(bookings.take(100, 50), 150);
  EXPECT_EQ(bookings.take(120, 10), 160);  // behind what is taken
  EXPECT_EQ(bookings.take(0, 100), 100);   // the gap before
  EXPECT_EQ(bookings.take(300, 100), 400);
  EXPECT_EQ(bookings.take(50, 200), 600);  // the gap from 160 to 300 is too short
  EXPECT_EQ(bookings.take(50, 140), 300);
  EXPECT_EQ(bookings.take(50, 1), 601);  // all of it is one now
}

TEST(Bookings, KnowHowMuchIsTaken) {
  Bookings bookings;
  bookings.take(100, 50);
  bookings.take(300, 100);
  EXPECT_EQ(bookings.taken_until(50), 0);
  EXPECT_EQ(bookings.taken_until(130), 30);
  EXPECT_EQ(bookings.taken_until(200), 50);
  bookings.take(210, 10);
  EXPECT_EQ(bookings.taken_until(310), 70);
  EXPECT_EQ(bookings.taken_until(1000), 160);
}

TEST(Bookings, ForgetNothingThatIsTaken) {
  constexpr base::Nanoseconds kMany = 1000;
  Bookings bookings;
  for (base::Nanoseconds i = 0; i < kMany; ++i) bookings.take(10 * i, 1);
  EXPECT_EQ(bookings.taken_until(10 * kMany), kMany);
}

}  // namespace
}  // namespace plait::comm::modelled
