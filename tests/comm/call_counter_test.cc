#include "comm/session/call_counter.h"

#include <gtest/gtest.h>

namespace plait::comm {
namespace {

TEST(CallCounter, NumbersCallsFromOne) {
  CallCounter calls;
  EXPECT_EQ(calls.begin(), 1U);
  EXPECT_EQ(calls.begin(), 2U);
  EXPECT_EQ(calls.completed(), 0U) << "a call that has begun is not complete";
}

TEST(CallCounter, CountsAnOperatorOnceWithAllItsCollectives) {
  CallCounter calls;
  calls.complete_collective();
  calls.set_in_operator(true);
  EXPECT_TRUE(calls.is_in_operator());
  calls.complete_collective();
  calls.complete_collective();
  EXPECT_EQ(calls.completed(), 1U);
  calls.complete_operator();
  calls.set_in_operator(false);
  EXPECT_EQ(calls.completed(), 2U);
  calls.complete_collective();
  EXPECT_EQ(calls.completed(), 3U);
}

}  // namespace
}  // namespace plait::comm
