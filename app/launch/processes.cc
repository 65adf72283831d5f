#include "launch/processes.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "base/text.h"

namespace plait::launch {
namespace {

namespace fs = std::filesystem;

// Reads as much as possible. If the process ends meanwhile, a read fails, and a file stream would
// throw.
std::string read_file(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> bytes;  // NOLINT(*-member-init): read() fills it
  ssize_t got = 0;
  while (file && (got = ::read(file.get(), bytes.data(), bytes.size())) != 0) {
    if (got > 0) text.append(bytes.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  return text;
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

// "17 (a name) with ) in it) S 1 17 ...": the name may contain anything, so search its end from the
// right.
std::optional<Process> read_process(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 'Z';
  Process process{.pid = pid};
  rest >> state >> process.parent >> process.group;
  // The start is the twentieth field after the state.
  std::string skipped;
  for (int word = 3; word < 20; ++word) rest >> skipped;
  rest >> process.start;
  if (!rest || state == 'Z' || state == 'X') return std::nullopt;
  return process;
}

base::Fd open_pidfd(pid_t pid) {
  return base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool send_signal(const base::Fd& pidfd, int signal, unsigned flags = 0) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, flags) == 0;
}

bool has_variable(pid_t pid, const std::string& wanted) {
  const std::string environ = '\0' + read_file("/proc/" + std::to_string(pid) + "/environ");
  return environ.find(wanted) != std::string::npos;
}

// For kernels that cannot signal a group by a pidfd (before 6.9). While the leader has not been
// waited for, the group's number can't be re-used, so a process that is found in the group before
// that check belongs to it.
void signal_members(const Group& group, int signal) {
  for (const pid_t pid : all_pids()) {
    const base::Fd pidfd = open_pidfd(pid);
    const auto process = read_process(pid);
    if (!process || process->group != group.pid) continue;
    if (!send_signal(group.leader, 0)) return;
    send_signal(pidfd, signal);
  }
}

}  // namespace

std::vector<Process> processes_below(pid_t root) {
  std::vector<Process> all;
  for (const pid_t pid : all_pids()) {
    if (const auto process = read_process(pid)) all.push_back(*process);
  }
  std::set<pid_t> family = {root};
  std::vector<Process> below;
  // Each pass finds one generation.
  for (std::size_t before = 0; before != family.size();) {
    before = family.size();
    for (const Process& process : all) {
      if (family.contains(process.parent) && family.insert(process.pid).second)
        below.push_back(process);
    }
  }
  return below;
}

bool signal_process(const Process& process, int signal) {
  const base::Fd pidfd = open_pidfd(process.pid);
  if (!pidfd && errno == ESRCH) return false;
  const auto now = read_process(process.pid);
  if (!now || now->start != process.start) return false;
  // Kernels before 5.3 have no pidfds; the check just above is the best possible.
  return pidfd ? send_signal(pidfd, signal) : ::kill(process.pid, signal) == 0;
}

Group open_group(pid_t leader) { return {.pid = leader, .leader = open_pidfd(leader)}; }

void signal_group(const Group& group, int signal) {
  constexpr unsigned kWholeGroup = 1U << 2;  // PIDFD_SIGNAL_PROCESS_GROUP
  if (!group.leader || send_signal(group.leader, signal, kWholeGroup)) return;
  if (errno == EINVAL) signal_members(group, signal);
}

bool kill_all_with(const std::string& variable) {
  const std::string wanted = '\0' + variable + '\0';
  bool found = false;
  for (const pid_t pid : all_pids()) {
    if (!has_variable(pid, wanted)) continue;
    const base::Fd pidfd = open_pidfd(pid);
    if (!has_variable(pid, wanted)) continue;
    found = true;
    if (pidfd) {
      send_signal(pidfd, SIGKILL);
    } else {
      ::kill(pid, SIGKILL);
    }
  }
  return found;
}

}  // namespace plait::launch
