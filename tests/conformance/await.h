// Waits of one thread of a test for another, with a deadline.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <thread>

namespace plait {

// Waits until ready() returns true. After a minute, which is far longer than a slow core needs, it
// gives up: the test fails, and says what did not happen. Returns whether it happened.
template <class Ready>
[[nodiscard]] bool await(std::string_view what, const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "within a minute it did not happen that " << what;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace plait
