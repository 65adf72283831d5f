#include "launch/guard.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/socket.h"
#include "base/text.h"
#include "launch/processes.h"

namespace plait::launch {
namespace {

void end_everything(const std::vector<Group>& groups, const std::string& variable) {
  for (const Group& group : groups) signal_group(group, SIGKILL);
  // A process that forks, or begins another program, at the moment of a look is not seen by it:
  // while a program is replaced, its environment reads as empty. So it takes several looks in a row
  // that find nothing. A process that SIGKILL does not end is stuck in the system.
  int without = 0;
  for (int look = 0; look < 100 && without < 3; ++look) {
    without = kill_all_with(variable) ? 0 : without + 1;
    const timespec pause = {.tv_sec = 0, .tv_nsec = 20'000'000};
    nanosleep(&pause, nullptr);
  }
}

// The groups that Guard::watch() has sent, until the socket closes.
std::vector<Group> receive_groups(const base::Fd& line) {
  std::vector<Group> groups;
  for (;;) {
    base::Message message;
    const base::Delivery delivery = base::receive_message(line, message);
    if (delivery == base::Delivery::closed) return groups;
    if (delivery == base::Delivery::not_yet) {
      base::wait_readable({&line}, base::kSecond);
      continue;
    }
    const auto pid = base::parse_int(message.bytes).value_or(0);
    groups.push_back({.pid = static_cast<pid_t>(pid), .leader = std::move(message.fd)});
  }
}

[[noreturn]] void stand_guard(int line, const std::string& job) try {
  setsid();  // plait run handles Ctrl-C and hang-ups
  prctl(PR_SET_NAME, "run-guard");
  dup2(line, STDIN_FILENO);
  // Close the output, so that a reader that waits for its end does not wait for the guard.
  close_range(1, ~0U, 0);
  const auto groups = receive_groups(base::Fd(STDIN_FILENO));
  end_everything(groups, "PLAIT_JOB=" + job);
  _exit(0);
} catch (const std::exception&) {
  _exit(1);
}

}  // namespace

Guard::Guard(const std::string& job) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    base::fail_errno("cannot make a socket to the guard");
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
  if (pid_ < 0) return;
  // The guard ends before the socket closes. It is killed, because a stopped guard would not react
  // to a message.
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// If the guard has ended or does not read, the run continues without it.
void Guard::watch(pid_t leader) {
  const Group group = open_group(leader);
  const std::string number = std::to_string(leader);
  const base::Nanoseconds deadline = base::now() + base::kSecond;
  while (base::now() < deadline &&
         base::send_message(line_, number, group.leader) == base::Delivery::not_yet) {
    base::wait_writable(line_, 10 * base::kMillisecond);
  }
}

}  // namespace plait::launch
