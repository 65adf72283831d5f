#include "comm/core/wait_policy.h"

#include <gtest/gtest.h>

#include "comm/environment.h"
#include "plait/communicator.h"
#include "plait/error.h"

namespace plait::comm {
namespace {

std::string refusal_with(const std::string& name, const std::string& value) {
  const Environment environment({{name, value}});
  try {
    wait_policy_from_environment();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "taken";
}

TEST(WaitPolicy, HasDefaults) {
  const Environment environment;
  const WaitPolicy policy = wait_policy_from_environment();
  EXPECT_EQ(policy.timeout, 600 * base::kSecond);
  EXPECT_EQ(policy.connect_timeout, 60 * base::kSecond);
  EXPECT_EQ(policy.spin, 20 * base::kMicrosecond);
  EXPECT_EQ(policy.yield, 200 * base::kMicrosecond);
}

TEST(WaitPolicy, ReadsTheEnvironment) {
  const Environment environment({{"PLAIT_WAIT", "yield=1ms,spin=0us"}, {"PLAIT_TIMEOUT", "250ms"}});
  const WaitPolicy policy = wait_policy_from_environment();
  EXPECT_EQ(policy.timeout, 250 * base::kMillisecond);
  EXPECT_EQ(policy.connect_timeout, 250 * base::kMillisecond);
  EXPECT_EQ(policy.spin, 0);
  EXPECT_EQ(policy.yield, base::kMillisecond);
}

TEST(WaitPolicy, TakesSecondsWhereNoUnitIsGiven) {
  const Environment environment(Environment::Variables{{"PLAIT_TIMEOUT", "90"}});
  EXPECT_EQ(wait_policy_from_environment().timeout, 90 * base::kSecond);
}

TEST(WaitPolicy, EitherPartAlone) {
  WaitPolicy policy;
  read_wait_policy("spin=5us", policy);
  EXPECT_EQ(policy.spin, 5 * base::kMicrosecond);
  EXPECT_EQ(policy.yield, WaitPolicy{}.yield);
}

TEST(WaitPolicy, RefusesOtherTimeouts) {
  for (const char* value : {"-1", "-5s", "soon", "1m", "5 s", "s", "1e30h", "nan", "inf"}) {
    EXPECT_EQ(refusal_with("PLAIT_TIMEOUT", value),
              std::string("PLAIT_TIMEOUT=") + value +
                  " is not a duration such as 500ms, 90s, 30min or 2h");
  }
}

TEST(WaitPolicy, RefusesToWaitForNoTime) {
  for (const char* value : {"0", "0s", "0ms"}) {
    EXPECT_EQ(refusal_with("PLAIT_TIMEOUT", value),
              std::string("PLAIT_TIMEOUT=") + value +
                  " leaves a rank no time to wait for another: say how long it may, like 60s");
  }
}

TEST(WaitPolicy, TakesTheTimeAfterWhichAHostIsLost) {
  const Environment environment(Environment::Variables{{"PLAIT_LOST_AFTER", "4s"}});
  EXPECT_EQ(wait_policy_from_environment().lost_after, 4 * base::kSecond);
  for (const char* value : {"0", "999ms", "2h"}) {
    EXPECT_EQ(refusal_with("PLAIT_LOST_AFTER", value),
              std::string("PLAIT_LOST_AFTER=") + value + " is not a duration from 1s to 1h");
  }
  for (const char* value : {"1m", "soon", "-3s"}) {
    EXPECT_EQ(refusal_with("PLAIT_LOST_AFTER", value),
              std::string("PLAIT_LOST_AFTER=") + value +
                  " is not a duration such as 500ms, 90s, 30min or 2h");
  }
}

TEST(WaitPolicy, RefusesOtherWaits) {
  for (const char* value : {"spin", "spin=", "spin=fast", "nap=5us", "spin=5us,", "=5us", "5us",
                            "spin=5us;yield=1ms", "Spin=5us", "spin=-5us", ","}) {
    EXPECT_EQ(refusal_with("PLAIT_WAIT", value),
              std::string("PLAIT_WAIT=") + value + " is not like \"spin=20us,yield=200us\"");
  }
}

TEST(WaitPolicy, RefusesToSpinForLong) {
  EXPECT_EQ(refusal_with("PLAIT_WAIT", "spin=10ms,yield=20s"), "taken");
  EXPECT_EQ(refusal_with("PLAIT_WAIT", "spin=0,spin=1us"),
            "PLAIT_WAIT=spin=0,spin=1us says spin= twice");
  EXPECT_EQ(refusal_with("PLAIT_WAIT", "spin=12s"),
            "PLAIT_WAIT=spin=12s spins for 12 s; a rank that spins sees no lost peer, so 10 ms is "
            "the most");
}

TEST(WaitPolicy, ConnectRefusesThemToo) {
  const Environment environment(Environment::Variables{{"PLAIT_TIMEOUT", "soon"}});
  EXPECT_THROW(Communicator::connect(), Error);
  const Environment none;
  EXPECT_THROW(Communicator::connect({.timeout = std::chrono::nanoseconds(-1)}), Error);
}

}  // namespace
}  // namespace plait::comm
