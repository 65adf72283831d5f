#include "base/fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace plait::base {
namespace {

TEST(Fiber, GoesOnWhereItHasLeft) {
  std::string said;
  std::unique_ptr<Fiber> fiber;
  fiber = std::make_unique<Fiber>([&] {
    said += 'a';
    fiber->leave();
    said += 'c';
  });
  EXPECT_EQ(said, "");
  fiber->go_on();
  EXPECT_FALSE(fiber->ended());
  said += 'b';
  fiber->go_on();
  EXPECT_TRUE(fiber->ended());
  EXPECT_EQ(said, "abc");
}

TEST(Fiber, ManyTakeTurns) {
  constexpr int kFibers = 500;
  std::vector<std::unique_ptr<Fiber>> fibers(kFibers);
  std::vector<int> counts(kFibers);
  for (int i = 0; i < kFibers; ++i) {
    fibers[i] = std::make_unique<Fiber>([&, i] {
      for (counts[i] = 1; counts[i] < 3; ++counts[i]) fibers[i]->leave();
    });
  }
  for (int turn = 1; turn <= 3; ++turn) {
    for (int i = 0; i < kFibers; ++i) {
      fibers[i]->go_on();
      ASSERT_EQ(counts[i], turn);
      ASSERT_EQ(fibers[i]->ended(), turn == 3);
    }
  }
}

TEST(Fiber, ThrowsAndCatchesOnItsOwnStack) {
  int caught = 0;
  std::unique_ptr<Fiber> fiber;
  fiber = std::make_unique<Fiber>([&] {
    for (int i = 0; i < 2; ++i) {
      try {
        fiber->leave();
        throw std::runtime_error("fiber");
      } catch (const std::runtime_error&) {
        ++caught;
      }
    }
  });
  while (!fiber->ended()) {
    try {
      fiber->go_on();
      throw std::logic_error("caller");
    } catch (const std::logic_error&) {
    }
  }
  EXPECT_EQ(caught, 2);
}

}  // namespace
}  // namespace plait::base
