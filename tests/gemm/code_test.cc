#include "gemm/xsmm/code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace plait::gemm::xsmm {
namespace {

TEST(CodeMemory, RunsWhatWasWrittenIntoIt) {
  if (!CodeMemory::is_allowed()) GTEST_SKIP() << "this process may not have executable memory";
  CodeMemory memory(4096);
  ASSERT_EQ(memory.bytes().size(), 4096U);
  constexpr std::array<unsigned char, 6> kReturn42 = {0xb8, 42, 0, 0, 0, 0xc3};
  std::transform(kReturn42.begin(), kReturn42.end(), memory.bytes().begin(),
                 [](unsigned char byte) { return std::byte{byte}; });
  ASSERT_TRUE(memory.make_executable());
  EXPECT_EQ(reinterpret_cast<int (*)()>(memory.bytes().data())(), 42);
}

TEST(CodeMemory, CannotBeWrittenOnceItIsExecutable) {
  if (!CodeMemory::is_allowed()) GTEST_SKIP() << "this process may not have executable memory";
  CodeMemory memory(64);
  memory.bytes().front() = std::byte{1};
  ASSERT_TRUE(memory.make_executable());
  EXPECT_DEATH(memory.bytes().front() = std::byte{2}, "");
}

}  // namespace
}  // namespace plait::gemm::xsmm
