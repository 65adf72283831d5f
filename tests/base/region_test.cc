#include "base/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "plait/error.h"
#include "tensor/sentence_of.h"

namespace plait::base {
namespace {

std::string refusal(const Fd& fd, std::size_t bytes) {
  return sentence_of([&] { Region::map(fd, bytes, "rank 3"); }, Code::system);
}

TEST(Region, AllocatesZeroedPages) {
  const Region region = Region::allocate(5000);
  ASSERT_NE(region.data(), nullptr);
  EXPECT_EQ(region.bytes(), 5000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.data()) % 4096, 0U);
  for (std::size_t i = 0; i < region.bytes(); ++i) ASSERT_EQ(region.data()[i], std::byte{0});
}

TEST(Region, OfNothingHasNoMemory) {
  EXPECT_EQ(Region::allocate(0).data(), nullptr);
  EXPECT_EQ(Region::map(Fd(), 0, "nobody").bytes(), 0U);
  EXPECT_EQ(Region().data(), nullptr);
}

TEST(Region, IsSharedByAllWhoMapIt) {
  const Fd fd = make_anonymous_file("test", 8192);
  const Region one = Region::map(fd, 8192, "rank 0");
  const Region two = Region::map(fd, 8192, "rank 0");
  EXPECT_NE(one.data(), two.data());
  one.data()[8191] = std::byte{42};
  EXPECT_EQ(two.data()[8191], std::byte{42});
}

// For each page of a region, true if it has memory.
std::vector<bool> resident(const Region& region) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> states((region.bytes() + page - 1) / page);
  EXPECT_EQ(::mincore(region.data(), region.bytes(), states.data()), 0);
  std::vector<bool> found;
  found.reserve(states.size());
  for (const unsigned char state : states) found.push_back((state & 1) != 0);
  return found;
}

TEST(Region, GetsThePagesOfAPartAtOnce) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const Fd fd = make_anonymous_file("test", 8 * page);
  for (const Region& region :
       {Region::map(fd, 8 * page, "rank 0"), Region::allocate(8 * page - 10)}) {
    EXPECT_EQ(resident(region), std::vector<bool>(8, false));
    region.populate(0, 0);
    EXPECT_EQ(resident(region), std::vector<bool>(8, false));
    region.populate(3 * page - 1, page + 2);
    std::vector<bool> expected(8, false);
    for (const int touched : {2, 3, 4}) expected[touched] = true;
    EXPECT_EQ(resident(region), expected);
    region.populate(0, region.bytes());
    EXPECT_EQ(resident(region), std::vector<bool>(8, true));
    EXPECT_EQ(region.data()[3 * page], std::byte{0});
  }
}

TEST(Region, LivesUntilTheLastCopyGoes) {
  Region copy;
  {
    const Region region = Region::allocate(4096);
    region.data()[0] = std::byte{7};
    copy = region;
  }
  EXPECT_EQ(copy.data()[0], std::byte{7});
}

TEST(Region, OutlivesItsDescriptor) {
  Fd fd = make_anonymous_file("test", 4096);
  const Region region = Region::map(fd, 4096, "rank 0");
  fd.reset();
  region.data()[4095] = std::byte{1};
  EXPECT_EQ(region.data()[4095], std::byte{1});
}

TEST(Region, RefusesMemoryThatIsTooSmall) {
  EXPECT_EQ(
      refusal(make_anonymous_file("test", 4096), 8192),
      "the memory that rank 3 offers has 4096 bytes, sealed; 8192 sealed ones were agreed on");
}

TEST(Region, RefusesMemoryThatCouldShrink) {
  const Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  EXPECT_EQ(
      refusal(fd, 8192),
      "the memory that rank 3 offers has 8192 bytes, not sealed; 8192 sealed ones were agreed on");
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW), 0);  // not the required seal
  EXPECT_NE(refusal(fd, 8192), "nothing was refused");
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(refusal(fd, 8192), "nothing was refused");
}

TEST(Region, RefusesWhatIsNoMemory) {
  const Fd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(
      refusal(zero, 4096),
      "the memory that rank 3 offers has 0 bytes, not sealed; 4096 sealed ones were agreed on");
  EXPECT_EQ(refusal(Fd(), 4096), "rank 3 offers no memory: has a process too many open files?");
}

TEST(Region, SaysWhichLimitLeavesNoRoom) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit few = {.rlim_cur = 8191, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
  const std::string words = sentence_of([] { make_anonymous_file("test", 8192); }, Code::system);
  EXPECT_TRUE(make_anonymous_file("test", 8191));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(words,
            "cannot reserve 8192 bytes of shared memory: files may have 8191 bytes (ulimit -f), "
            "and this memory counts as a file");
}

TEST(Region, FilesCanNeitherShrinkNorGrow) {
  const Fd fd = make_anonymous_file("test", 4096);
  EXPECT_EQ(::ftruncate(fd.get(), 4095), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd.get(), 4097), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);  // and it can't be made read-only
}

}  // namespace
}  // namespace plait::base
