#include "launch/cgroup.h"

#include "base/fake_root.h"

namespace plait::launch {
namespace {

class Cgroup : public base::FakeRoot {};

TEST_F(Cgroup, NoGroupsNoLimits) {
  EXPECT_FALSE(read_cgroup_limits(root_).cpus);
  EXPECT_FALSE(read_cgroup_limits(root_).memory);
}

TEST_F(Cgroup, TheTightestLimitOnTheWayUpCounts) {
  write("proc/self/cgroup", "0::/slice/job\n");
  write("sys/fs/cgroup/slice/job/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/slice/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/slice/job/memory.max", "max\n");
  write("sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(read_cgroup_limits(root_).cpus, 2.5);
  EXPECT_EQ(read_cgroup_limits(root_).memory, 1073741824);
}

TEST_F(Cgroup, NoQuotaIsNoLimit) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_FALSE(read_cgroup_limits(root_).cpus);
}

TEST_F(Cgroup, AContainerWhoseOwnPathIsNotMountedSeesItsTopmostGroup) {
  write("proc/self/cgroup", "0::/docker/0123abcd\n");
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(read_cgroup_limits(root_).cpus, 1.5);
}

TEST_F(Cgroup, Version1) {
  write("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n1:name=systemd:/\n");
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read_cgroup_limits(root_).cpus, 3.0);
  EXPECT_FALSE(read_cgroup_limits(root_).memory);
}

}  // namespace
}  // namespace plait::launch
