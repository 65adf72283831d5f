#include "gemm/workspace.h"

#include <gtest/gtest.h>

namespace plait::gemm {
namespace {

TEST(Workspace, GrowsAndStaysAsLargeAsItWas) {
  Buffer buffer;
  const std::byte* const first = Workspace::at_least(buffer, 1000);
  EXPECT_GE(buffer.bytes(), 1000U);
  EXPECT_EQ(Workspace::at_least(buffer, 10), first);
  EXPECT_EQ(Workspace::at_least(buffer, 1000), first);
  EXPECT_GE(buffer.bytes(), 1000U);
  const std::byte* const larger = Workspace::at_least(buffer, 100'000);
  EXPECT_EQ(larger, buffer.data());
  EXPECT_GE(buffer.bytes(), 100'000U);
}

TEST(Workspace, CountsTheMemoryOfAllThreads) {
  Workspace workspace;
  EXPECT_EQ(workspace.bytes(), 0U);
  workspace.threads.resize(3);
  EXPECT_EQ(workspace.bytes(), 0U);
  std::size_t bytes = 0;
  const auto grow = [&](Buffer& buffer, std::size_t by) {
    Workspace::at_least(buffer, by);
    bytes += buffer.bytes();
    EXPECT_EQ(workspace.bytes(), bytes);
  };
  grow(workspace.rows, 100);
  grow(workspace.bias, 200);
  grow(workspace.threads[0].sums, 300);
  grow(workspace.threads[1].parts, 400);
  grow(workspace.threads[2].blocks, 500);
  grow(workspace.threads[2].panels, 600);
}

}  // namespace
}  // namespace plait::gemm
