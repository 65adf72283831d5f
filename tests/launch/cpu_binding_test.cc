#include "launch/cpu_binding.h"

#include <gtest/gtest.h>

#include "plait/error.h"

namespace plait::launch {
namespace {

// Cores with two hardware threads each: core i has the cpus i and i + cores, as Linux numbers them.
// The nodes have equal shares.
std::vector<Core> host(int cores, int nodes) {
  std::vector<Core> all;
  all.reserve(cores);
  for (int i = 0; i < cores; ++i)
    all.push_back({.cpus = {i, i + cores}, .node = i * nodes / cores});
  return all;
}

std::vector<std::string> shown(const std::vector<CpuBinding>& bindings) {
  std::vector<std::string> all;
  all.reserve(bindings.size());
  for (const CpuBinding& binding : bindings)
    all.push_back(show_cpus(binding.cpus) + " x" + std::to_string(binding.threads));
  return all;
}

using Shown = std::vector<std::string>;

TEST(CpuBinding, CoreGivesEqualSharesOfNeighbours) {
  EXPECT_EQ(shown(bindings_for(Bind::core, 2, host(4, 1), {})),
            (Shown{"0-1,4-5 x2", "2-3,6-7 x2"}));
  EXPECT_EQ(shown(bindings_for(Bind::core, 3, host(4, 1), {})),
            (Shown{"0,4 x1", "1,5 x1", "2,6 x1"}));
  EXPECT_EQ(shown(bindings_for(Bind::core, 3, host(8, 1), {})),
            (Shown{"0-1,8-9 x2", "2-3,10-11 x2", "4-5,12-13 x2"}));
  EXPECT_THROW(bindings_for(Bind::core, 5, host(4, 1), {}), Error);
}

TEST(CpuBinding, NumaGoesRoundTheNodes) {
  EXPECT_EQ(shown(bindings_for(Bind::numa, 2, host(4, 2), {})),
            (Shown{"0-1,4-5 x2", "2-3,6-7 x2"}));
  EXPECT_EQ(shown(bindings_for(Bind::numa, 3, host(8, 2), {})),
            (Shown{"0-3,8-11 x2", "4-7,12-15 x2", "0-3,8-11 x2"}));
  EXPECT_EQ(shown(bindings_for(Bind::numa, 1, host(4, 2), {})), (Shown{"0-1,4-5 x2"}));
  EXPECT_EQ(shown(bindings_for(Bind::numa, 3, host(2, 2), {})),
            (Shown{"0,2 x1", "1,3 x1", "0,2 x1"}));
}

TEST(CpuBinding, NoneSharesOutThreadsOnly) {
  EXPECT_EQ(shown(bindings_for(Bind::none, 2, host(8, 2), {})), (Shown{" x4", " x4"}));
  EXPECT_EQ(shown(bindings_for(Bind::none, 3, host(2, 1), {})), (Shown{" x1", " x1", " x1"}));
}

TEST(CpuBinding, AContainersLimitOnProcessorTimeLimitsThreads) {
  EXPECT_EQ(shown(bindings_for(Bind::none, 2, host(8, 1), 5.0)), (Shown{" x2", " x2"}));
  EXPECT_EQ(shown(bindings_for(Bind::none, 2, host(8, 1), 0.5)), (Shown{" x1", " x1"}));
  EXPECT_EQ(shown(bindings_for(Bind::core, 2, host(4, 1), 2.5)),
            (Shown{"0-1,4-5 x1", "2-3,6-7 x1"}));
}

TEST(CpuBinding, ByDefaultRanksAreBoundWhereTheCoresAreTheirs) {
  EXPECT_EQ(default_bind(4, 4, {}), Bind::core);
  EXPECT_EQ(default_bind(4, 5, {}), Bind::none);
  EXPECT_EQ(default_bind(64, 2, 4.0), Bind::none);
  EXPECT_EQ(default_bind(4, 2, 4.0), Bind::core);
}

TEST(ShowCpus, JoinsRanges) {
  EXPECT_EQ(show_cpus({0, 1, 2, 5, 8, 9}), "0-2,5,8-9");
  EXPECT_EQ(show_cpus({}), "");
}

}  // namespace
}  // namespace plait::launch
