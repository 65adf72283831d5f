// What the container, or whoever else made our control group, lets us have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace plait::cli {

struct CgroupLimits {
  std::optional<double> cpus;          // processor time per time: 2.5 is two and a half processors
  std::optional<std::int64_t> memory;  // bytes
};

// The tightest limit from our group up to the topmost we can see, in version 1 and 2 groups alike.
// `root` is where proc/ and sys/ are.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace plait::cli
