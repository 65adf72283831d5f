#include "comm/control/lookup.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace plait::comm::tcp {
namespace {

std::optional<Found> look_up(const std::string& host) {
  return Lookup(host, 29600).wait(base::now() + 60 * base::kSecond);
}

TEST(Lookup, FiguresAreThereAtOnce) {
  const auto found = Lookup("10.0.0.1", 29600).wait(0);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->addresses.size(), 1U);
  EXPECT_EQ(show_host(found->addresses.front()), "10.0.0.1");
}

TEST(Lookup, ANameIsFoundInAWhile) {
  const auto found = look_up("localhost");
  ASSERT_TRUE(found);
  ASSERT_FALSE(found->addresses.empty());
  EXPECT_TRUE(found->addresses.front().is_loopback());
}

TEST(Lookup, SaysWhyThereIsNoAddress) {
  const auto found = look_up(std::string(64, 'x'));  // longer than a name may be
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->addresses.empty());
  EXPECT_FALSE(found->why.empty());
}

// Exits with 0 if a process without the right to start a thread is told so at once.
[[noreturn]] void look_up_without_threads() {
  constexpr uid_t kNobody = 65534;
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_NPROC, &none);
  if (::setuid(kNobody) != 0) ::_exit(2);
  const auto found = Lookup("localhost", 29600).wait(base::now());
  const bool told = found && found->addresses.empty() &&
                    found->why.find("no thread to look up localhost") != std::string::npos;
  ::_exit(told ? 0 : 1);
}

TEST(LookupDeathTest, SaysThatThereCanBeNoThread) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to start a process of another user";
  EXPECT_EXIT(look_up_without_threads(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plait::comm::tcp
