#include "launch/cgroup.h"

#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"

namespace plait::launch {
namespace {

namespace fs = std::filesystem;

// Version 1 reports a memory limit above this if there is none.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

std::vector<std::string> read_words(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

template <class Value>
void tighten(std::optional<Value>& limit, Value seen) {
  if (!limit || seen < *limit) limit = seen;
}

void read_cpu_quota(const std::vector<std::string>& words, CgroupLimits& limits) {
  if (words.size() < 2) return;
  const auto quota = base::parse_number(words[0]);
  const auto period = base::parse_number(words[1]);
  if (quota && period && *quota > 0 && *period > 0) tighten(limits.cpus, *quota / *period);
}

void read_memory(const std::vector<std::string>& words, CgroupLimits& limits) {
  if (words.empty()) return;
  const auto bytes = base::parse_int(words[0]);
  if (bytes && *bytes > 0 && *bytes < kNoLimit) tighten(limits.memory, *bytes);
}

void read_group(const fs::path& group, CgroupLimits& limits) {
  read_cpu_quota(read_words(group / "cpu.max"), limits);
  auto quota = read_words(group / "cpu.cfs_quota_us");
  for (const auto& word : read_words(group / "cpu.cfs_period_us")) quota.push_back(word);
  read_cpu_quota(quota, limits);
  read_memory(read_words(group / "memory.max"), limits);
  read_memory(read_words(group / "memory.limit_in_bytes"), limits);
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // A line is "0::/user.slice/job" in version 2, and "4:cpu,cpuacct:/docker/ab12" in version 1.
  // Inside a container the path may be the host's, which is not mounted here; then the topmost
  // group that is mounted applies.
  for (std::string line; std::getline(groups, line);) {
    const auto parts = base::split(line, ':');
    if (parts.size() < 3) continue;
    for (const fs::path& mount : {mounts / parts[1], mounts / "unified"}) {
      fs::path group = parts[2];
      for (; group.has_relative_path(); group = group.parent_path())
        read_group(mount / group.relative_path(), limits);
      read_group(mount, limits);
    }
  }
  return limits;
}

}  // namespace plait::launch
