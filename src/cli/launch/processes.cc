#include "cli/launch/processes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "base/text.h"

namespace plait::cli {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = base::parse_int(entry.path().filename().string());
    if (pid) pids.push_back(static_cast<pid_t>(*pid));
  }
  return pids;
}

// "17 (a name) with ) in it) S 1 17 ...": the name may hold anything, so it is skipped from the
// right.
std::optional<Process> read_process(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 'Z';
  Process process{.pid = pid};
  rest >> state >> process.parent >> process.group;
  if (!rest || state == 'Z' || state == 'X') return std::nullopt;
  return process;
}

}  // namespace

std::vector<Process> processes_below(pid_t root) {
  std::vector<Process> all;
  for (const pid_t pid : all_pids()) {
    if (const auto process = read_process(pid)) all.push_back(*process);
  }
  std::set<pid_t> family = {root};
  std::vector<Process> below;
  // A generation a pass.
  for (std::size_t before = 0; before != family.size();) {
    before = family.size();
    for (const Process& process : all) {
      if (family.contains(process.parent) && family.insert(process.pid).second)
        below.push_back(process);
    }
  }
  return below;
}

std::vector<pid_t> processes_with(const std::string& variable) {
  const std::string wanted = '\0' + variable + '\0';
  std::vector<pid_t> found;
  for (const pid_t pid : all_pids()) {
    const std::string environ = '\0' + read_file("/proc/" + std::to_string(pid) + "/environ");
    if (environ.find(wanted) != std::string::npos) found.push_back(pid);
  }
  return found;
}

}  // namespace plait::cli
