#include "measure/peak.h"

#include <cstring>

#include "base/fake_root.h"
#include "plait/buffer.h"

namespace plait::measure {
namespace {

class Peak : public base::FakeRoot {};

TEST_F(Peak, IsReadInBytes) {
  write("status", "Name:\tplait\nVmPeak:\t  900 kB\nVmHWM:\t   42 kB\nVmRSS:\t    7 kB\n");
  EXPECT_EQ(read_peak(root_), 42 * 1024);
}

TEST_F(Peak, IsUnknownWhereTheSystemDoesNotTell) {
  write("status", "Name:\tplait\n");
  EXPECT_FALSE(read_peak(root_));
  EXPECT_FALSE(read_peak(root_ / "nothing"));
  EXPECT_FALSE(forget_peak(root_ / "nothing"));
}

TEST_F(Peak, CountsWhatThisProcessTouchesFromNowOn) {
  constexpr std::size_t kMuch = std::size_t{64} << 20;
  if (!forget_peak()) GTEST_SKIP() << "the system does not let a process reset its peak";
  const std::int64_t before = read_peak().value_or(0);
  {
    const Buffer buffer(kMuch, {.huge_pages = true});  // freed at once
    std::memset(buffer.data(), 1, kMuch);
  }
  EXPECT_GE(read_peak().value_or(0), before + static_cast<std::int64_t>(kMuch) / 2);
  ASSERT_TRUE(forget_peak());
  EXPECT_LT(read_peak().value_or(0), before + static_cast<std::int64_t>(kMuch) / 2);
}

}  // namespace
}  // namespace plait::measure
