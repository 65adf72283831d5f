// A rank on a simulated clock, compared with calculations by hand.
#include "plan/rank_model.h"

#include <gtest/gtest.h>

namespace plait::plan {
namespace {

TEST(RankModel, DoesOneAfterTheOtherWhereNothingIsBeside) {
  RankModel rank({.latency = 5, .ns_per_byte = 2});
  rank.multiply(1000);
  rank.post({.pack = 10, .bytes = 100, .land = 20});
  rank.wait_for_all();
  EXPECT_DOUBLE_EQ(rank.now(), 1000 + 10 + 200 + 5 + 20);
  EXPECT_DOUBLE_EQ(rank.product(), 1000);
  EXPECT_DOUBLE_EQ(rank.worked(), 30);
  EXPECT_DOUBLE_EQ(rank.waited(), 205);
  EXPECT_DOUBLE_EQ(rank.transfer(), 200);
}

TEST(RankModel, HidesWhatTravelsButNotItsWork) {
  RankModel rank({.latency = 5, .ns_per_byte = 2, .slower = 1.5});
  rank.post({.pack = 10, .bytes = 100, .land = 20});
  rank.multiply(1000);
  rank.wait_for_all();
  EXPECT_DOUBLE_EQ(rank.now(), 1000 + 1.5 * 30);
  EXPECT_DOUBLE_EQ(rank.waited(), 0);
}

TEST(RankModel, LooksOnlyNowAndThen) {
  RankModel rank({.latency = 100, .poll_interval = 60});
  rank.post({.land = 7, .returns = true, .take = 3});
  rank.multiply(120);  // the chunk lands at 100, and would be noticed at 130
  EXPECT_EQ(rank.finished(), 0U);
  EXPECT_DOUBLE_EQ(rank.now(), 127);  // noticed when the product is done
  rank.wait_for_all();
  EXPECT_DOUBLE_EQ(rank.now(), 127 + 100 + 3);
}

TEST(RankModel, HasOneLinkForAllThatItSends) {
  RankModel rank({.latency = 1, .ns_per_byte = 1});
  for (int i = 0; i < 3; ++i) rank.post({.bytes = 100, .returns = true, .back_bytes = 10});
  rank.wait_for_finished(1);
  // 300 bytes were queued before the first chunk could be answered.
  EXPECT_DOUBLE_EQ(rank.now(), 311);
  rank.wait_for_all();
  EXPECT_DOUBLE_EQ(rank.now(), 331);
  EXPECT_DOUBLE_EQ(rank.transfer(), 330);
}

TEST(RankModel, SendsNoMoreThanThereIsRoomFor) {
  RankModel rank({.latency = 50});
  for (int i = 0; i < 9; ++i) rank.post({.pack = 1});
  EXPECT_DOUBLE_EQ(rank.now(), 8);  // the ninth waits for the first to land, at 51
  rank.wait_for_landed(8);
  EXPECT_DOUBLE_EQ(rank.now(), 58);
  rank.wait_for_all();
  EXPECT_DOUBLE_EQ(rank.now(), 102);
  rank.wait_for_room();
  EXPECT_DOUBLE_EQ(rank.now(), 102);
}

}  // namespace
}  // namespace plait::plan
