// The limits that this process's control group sets, for instance in a container.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace plait::launch {

struct CgroupLimits {
  std::optional<double> cpus;  // processor time per time: 2.5 means two and a half processors
  std::optional<std::int64_t> memory;  // bytes
};

// Returns the tightest limits of our group and of all groups above it that are visible, for groups
// of version 1 and 2. `root` contains proc/ and sys/.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace plait::launch
