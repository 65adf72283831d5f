#include "base/cpus.h"

#include <gtest/gtest.h>

#include <thread>

namespace plait::base {
namespace {

int first_of(const cpu_set_t& cpus) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) return cpu;
  }
  return -1;
}

TEST(Cpus, AreThoseOfTheCallingThread) {
  const cpu_set_t all = allowed_cpus();
  const int one = first_of(all);
  ASSERT_GE(one, 0);
  std::thread([&] {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(one, &only);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(only), &only), 0);
    const cpu_set_t allowed = allowed_cpus();
    EXPECT_TRUE(CPU_EQUAL(&allowed, &only));
  }).join();
  const cpu_set_t still = allowed_cpus();
  EXPECT_TRUE(CPU_EQUAL(&still, &all));
}

TEST(Cpus, SurviveBeingSent) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : {0, 9, CPU_SETSIZE - 1}) CPU_SET(cpu, &cpus);
  const cpu_set_t got = cpus_from_bytes(to_bytes(cpus));
  EXPECT_TRUE(CPU_EQUAL(&got, &cpus));
}

TEST(Cpus, OfTooFewOrTooManyBytesAreWhatTheBytesSay) {
  EXPECT_EQ(first_of(cpus_from_bytes("")), -1);
  const cpu_set_t third = cpus_from_bytes("\4");
  EXPECT_EQ(CPU_COUNT(&third), 1);
  EXPECT_EQ(first_of(third), 2);
  std::string long_one(sizeof(cpu_set_t), '\0');
  long_one.push_back('\xff');
  const cpu_set_t none = cpus_from_bytes(long_one);
  EXPECT_EQ(CPU_COUNT(&none), 0);
}

}  // namespace
}  // namespace plait::base
