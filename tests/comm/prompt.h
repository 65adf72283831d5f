// How soon an interrupted call ends: within 0.2 s on a machine with a core to spare.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "comm/milestones.h"

namespace plait {

using Clock = std::chrono::steady_clock;

// A busy machine may delay any one try, so the best of ten counts. Made before forking, as
// Milestones are.
class Prompt {
 public:
  // How long a call went on after it was asked to end, in any process of the test.
  void took(Clock::duration time) {
    EXPECT_LT(time, std::chrono::seconds(20));  // a call that hangs ends after minutes
    if (time < std::chrono::milliseconds(200)) tries_.reach(kPrompt);
  }

  void expect(const std::function<void()>& make_a_try) const {
    for (int tries = 0; tries < 10 && tries_.reached(kPrompt) == 0; ++tries) make_a_try();
    EXPECT_GT(tries_.reached(kPrompt), 0) << "no call ended within 0.2 s";
  }

 private:
  static constexpr int kPrompt = 0;
  Milestones tries_;
};

}  // namespace plait
