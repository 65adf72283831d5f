#include "launch/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/cpus.h"

namespace plait::launch {
namespace {

TEST(Topology, ListsProcessorsInRanges) {
  EXPECT_EQ(show_cpus({}), "");
  EXPECT_EQ(show_cpus({3}), "3");
  EXPECT_EQ(show_cpus({0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(show_cpus({0, 2, 3, 10, 11, 12}), "0,2-3,10-12");
}

TEST(Topology, OrdersTheHardwareThreadsOfCores) {
  EXPECT_EQ(cpus_of({{.cpus = {1, 5}}, {.cpus = {0, 4}}}), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_TRUE(cpus_of({}).empty());
}

TEST(Topology, HasTheProcessorsThatThisProcessMayUse) {
  const Topology topology = read_topology();
  const cpu_set_t allowed = base::allowed_cpus();
  const std::vector<int> cpus = cpus_of(topology.cores);
  EXPECT_EQ(static_cast<int>(cpus.size()), CPU_COUNT(&allowed));
  for (const int cpu : cpus) EXPECT_TRUE(CPU_ISSET(cpu, &allowed)) << cpu;
  EXPECT_GE(topology.host_cpus, static_cast<int>(cpus.size()));
  EXPECT_GE(topology.packages, 0);
  for (const CacheLevel& cache : topology.caches) {
    EXPECT_GT(cache.bytes, 0) << cache.name;
    EXPECT_GT(cache.count, 0) << cache.name;
  }
}

TEST(Topology, ObeysTheProcessAffinity) {
  const cpu_set_t before = base::allowed_cpus();
  const int last = cpus_of(read_topology().cores).back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cpus_of(read_topology().cores), std::vector<int>{last});
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace plait::launch
