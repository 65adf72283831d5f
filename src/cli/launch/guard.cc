#include "cli/launch/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <vector>

#include "base/check.h"
#include "cli/launch/processes.h"

namespace plait::cli {
namespace {

void end_everything(const std::vector<pid_t>& groups, const std::string& variable) {
  for (const pid_t group : groups) kill(-group, SIGKILL);
  // Who is forking at this moment may slip through one look, so look until nobody is left; a
  // process that even SIGKILL does not end is the system's problem by then.
  for (int look = 0; look < 100; ++look) {
    const auto left = processes_with(variable);
    if (left.empty()) return;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    const timespec pause = {.tv_sec = 0, .tv_nsec = 20'000'000};
    nanosleep(&pause, nullptr);
  }
}

[[noreturn]] void stand_guard(int line, const std::string& job) {
  setsid();  // Ctrl-C and hang-ups are for plait run
  prctl(PR_SET_NAME, "run-guard");
  dup2(line, STDIN_FILENO);
  // Nobody who reads our output to its end should have to wait for the guard.
  close_range(1, ~0U, 0);
  std::vector<pid_t> groups;
  for (;;) {
    pid_t group = 0;
    const ssize_t got = read(STDIN_FILENO, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof group) break;
    groups.push_back(group);
  }
  end_everything(groups, "PLAIT_JOB=" + job);
  _exit(0);
}

}  // namespace

Guard::Guard(const std::string& job) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) base::fail_errno("cannot make a pipe");
  base::Fd line(ends[0]);
  line_ = base::Fd(ends[1]);
  pid_ = fork();
  if (pid_ < 0) base::fail_errno("cannot start a process");
  if (pid_ == 0) {
    line_.reset();
    stand_guard(line.get(), job);
  }
}

Guard::~Guard() {
  // Before the line closes. Killed, since it may have been stopped and could not hear us then.
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch(pid_t group) {
  [[maybe_unused]] const ssize_t sent = write(line_.get(), &group, sizeof group);
}

}  // namespace plait::cli
