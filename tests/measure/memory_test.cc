#include "measure/memory.h"

#include "base/fake_root.h"

namespace plait::measure {
namespace {

class MemoryOf : public base::FakeRoot {};

TEST_F(MemoryOf, AHostThatTellsEverything) {
  write("proc/meminfo",
        "MemTotal:  16 kB\nMemFree: 9 kB\nHugePages_Total: 3\nMemAvailable: 8 kB\n");
  write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "40\n");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "7\n");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "[always] within_size never deny\n");
  const Memory memory = read_memory(root_);
  EXPECT_EQ(memory.bytes, 16384);
  EXPECT_EQ(memory.available, 8192);
  ASSERT_EQ(memory.huge_pages.size(), 2);
  EXPECT_EQ(memory.huge_pages[0].bytes, 2 << 20);
  EXPECT_EQ(memory.huge_pages[0].reserved, 40);
  EXPECT_EQ(memory.huge_pages[0].free, 7);
  EXPECT_EQ(memory.huge_pages[1].bytes, 1 << 30);
  EXPECT_EQ(memory.transparent, "madvise");
  EXPECT_EQ(memory.shared_transparent, "always");
}

TEST_F(MemoryOf, AHostThatTellsNothing) {
  const Memory memory = read_memory(root_);
  EXPECT_EQ(memory.bytes, 0);
  EXPECT_TRUE(memory.huge_pages.empty());
  EXPECT_EQ(memory.transparent, "");
}

}  // namespace
}  // namespace plait::measure
