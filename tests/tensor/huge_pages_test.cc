#include "tensor/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

namespace plait::tensor {
namespace {

TEST(HugePages, AreAlignedZeroedAndWholly) {
  constexpr std::size_t kBytes = 3 * kHugePage;
  std::byte* data = map_huge_pages(kBytes);
  if (data == nullptr) GTEST_SKIP() << "this system has no huge pages";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kHugePage, 0);
  EXPECT_EQ(data[0], std::byte{0});
  std::memset(data, 1, kBytes);
  EXPECT_EQ(data[kBytes - 1], std::byte{1});
  EXPECT_LE(huge_page_bytes(data, kBytes), kBytes);
  EXPECT_EQ(::munmap(data, kBytes), 0);
}

TEST(HugePages, AreRefusedWhereMemoryEnds) {
  EXPECT_EQ(map_huge_pages(std::size_t{1} << 62), nullptr);
}

TEST(HugePages, AreNoneInOrdinaryMemory) {
  const std::byte here{};
  EXPECT_EQ(huge_page_bytes(&here, 1), 0);
}

}  // namespace
}  // namespace plait::tensor
