#include "gemm/panel_memory.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace plait::gemm {
namespace {

// Sizes that no other test of this program asks for.
constexpr std::size_t kSmall = 3'000'017;
constexpr std::size_t kLarge = 5'000'011;

TEST(PanelMemory, IsLentToTheNextThatNeedsAsMuch) {
  std::optional<PanelMemory> memory(kSmall);
  const std::byte* const data = memory->data();
  memory.reset();
  const PanelMemory again(kSmall);
  EXPECT_EQ(again.data(), data);
  const PanelMemory beside(kSmall);
  EXPECT_NE(beside.data(), data);
}

TEST(PanelMemory, IsTheSmallestThatIsLargeEnough) {
  std::optional<PanelMemory> large(kLarge);
  std::optional<PanelMemory> small(kSmall);
  const std::byte* const smaller = small->data();
  const std::byte* const larger = large->data();
  large.reset();
  small.reset();
  const PanelMemory first(kSmall - 1);
  EXPECT_EQ(first.data(), smaller);
  EXPECT_GE(first.bytes(), kSmall);
  const PanelMemory second(kSmall - 1);
  EXPECT_EQ(second.data(), larger);
}

TEST(PanelMemory, IsGivenBackWhereAnotherTakesItsPlace) {
  PanelMemory memory(kSmall);
  const std::byte* const data = memory.data();
  memory = PanelMemory(kLarge);
  EXPECT_GE(memory.bytes(), kLarge);
  const PanelMemory next(kSmall);
  EXPECT_EQ(next.data(), data);
}

TEST(PanelMemory, StaysWhereItIsAssignedToItself) {
  PanelMemory memory(kSmall);
  const std::byte* const data = memory.data();
  PanelMemory& same = memory;
  memory = std::move(same);
  EXPECT_EQ(memory.data(), data);
  EXPECT_GE(memory.bytes(), kSmall);
}

TEST(PanelMemory, MovesWithItsOwner) {
  PanelMemory memory(kSmall);
  const std::byte* const data = memory.data();
  {
    const PanelMemory owner = std::move(memory);
    EXPECT_EQ(owner.data(), data);
    const PanelMemory other(kSmall);
    EXPECT_NE(other.data(), data);
  }
  EXPECT_EQ(PanelMemory().bytes(), 0U);
}

}  // namespace
}  // namespace plait::gemm
