#include "plan/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "plait/version.h"

namespace plait::plan {
namespace {

TEST(MachineFingerprint, IsOneLineWithTheVersion) {
  const std::string text = machine_fingerprint();
  EXPECT_TRUE(text.starts_with("plait " + std::string(kVersion) + ", ")) << text;
  EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }))
      << text;
}

TEST(MachineFingerprint, IsTheSameForRanksOnDifferentProcessors) {
  const std::string text = machine_fingerprint();
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(machine_fingerprint(), text);
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace plait::plan
