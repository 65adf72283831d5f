#include "tensor/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "folder.h"

namespace plait::tensor {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(HugePages, AreAlignedZeroedAndWholly) {
  // The last page of those of 16 and 512 MiB is not complete.
  for (const std::size_t page : {2 * kMiB, 16 * kMiB, 512 * kMiB}) {
    const std::size_t bytes = mapped_in_huge_pages(page + 3 * kMiB, page);
    EXPECT_EQ(bytes, page + 4 * kMiB);
    std::byte* data = map_huge_pages(bytes, page);
    if (data == nullptr) GTEST_SKIP() << "this system has no huge pages";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % page, 0);
    EXPECT_EQ(data[0], std::byte{0});
    if (page < 512 * kMiB) std::memset(data, 1, bytes);
    data[bytes - 1] = std::byte{1};
    EXPECT_LE(huge_page_bytes(data, bytes), bytes);
    EXPECT_EQ(::munmap(data, bytes), 0);
  }
}

TEST(HugePages, AreNotAskedForByLessThanOne) {
  EXPECT_EQ(mapped_in_huge_pages(2 * kMiB - 1, 2 * kMiB), 0);
  EXPECT_EQ(mapped_in_huge_pages(2 * kMiB, 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(mapped_in_huge_pages(511 * kMiB, 512 * kMiB), 0);
  EXPECT_EQ(mapped_in_huge_pages(512 * kMiB + 1, 512 * kMiB), 514 * kMiB);
}

// A folder as that of Linux.
std::size_t found_with(const std::string& of_processor, const std::string& of_two_mib) {
  const test::Folder folder;
  if (!of_processor.empty()) std::ofstream(folder / "hpage_pmd_size") << of_processor << '\n';
  if (!of_two_mib.empty()) {
    std::filesystem::create_directory(folder / "hugepages-2048kB");
    std::ofstream(folder / "hugepages-2048kB/enabled") << of_two_mib << '\n';
  }
  return find_huge_page(folder / "");
}

TEST(HugePages, HaveTheSizeThatTheSystemOffers) {
  EXPECT_EQ(found_with("2097152", ""), 2 * kMiB);
  EXPECT_EQ(found_with("536870912", ""), 512 * kMiB);
  EXPECT_EQ(found_with("536870912", "always inherit madvise [never]"), 512 * kMiB);
  EXPECT_EQ(found_with("536870912", "always inherit [madvise] never"), 2 * kMiB);
  for (const char* nothing : {"", "none", "0", "-1", "3000000"})
    EXPECT_EQ(found_with(nothing, ""), 2 * kMiB) << nothing;
  EXPECT_EQ(huge_page(), find_huge_page());
}

TEST(HugePages, AreRefusedWhereMemoryEnds) {
  EXPECT_EQ(map_huge_pages(std::size_t{1} << 62, 512 * kMiB), nullptr);
}

TEST(HugePages, AreNoneInOrdinaryMemory) {
  const std::byte here{};
  EXPECT_EQ(huge_page_bytes(&here, 1), 0);
}

}  // namespace
}  // namespace plait::tensor
