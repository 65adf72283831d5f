#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

constexpr const char* kName = "PLAIT_ENV_TEST";

class Env : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv(kName); }

  static void set(const char* value) { ::setenv(kName, value, /*overwrite=*/1); }
};

TEST_F(Env, AnEmptyVariableCountsAsUnset) {
  EXPECT_EQ(env(kName), std::nullopt);
  set("");
  EXPECT_EQ(env(kName), std::nullopt);
  EXPECT_EQ(env_int(kName, 1, 2), std::nullopt);
  set(" ");
  EXPECT_EQ(env(kName), " ");
}

TEST_F(Env, ReadsWholeNumbersUpToTheLimits) {
  for (const char* text : {"-3", "0", "12"}) {
    set(text);
    EXPECT_EQ(env_int(kName, -3, 12), std::atoi(text));
  }
}

TEST_F(Env, RefusesOtherValuesByTheVariablesName) {
  for (const char* text : {"-4", "13", "1.5", "2x", "x", " 1", "99999999999999999999"}) {
    set(text);
    EXPECT_EQ(sentence_of([] { env_int(kName, -3, 12); }),
              std::string("PLAIT_ENV_TEST=") + text + " is not a whole number from -3 to 12");
  }
}

}  // namespace
}  // namespace plait::base
