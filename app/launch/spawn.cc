#include "launch/spawn.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <system_error>

#include "base/check.h"
#include "base/fd.h"

namespace plait::launch {
namespace {

// The error that a child reports to its parent if it can't start its program.
struct Complaint {
  const char* deed;  // literals have the same addresses in the parent
  const char* hint;
  int reason;
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// The mask as the kernel expects it: one bit per processor, for any number of them.
std::vector<unsigned long> mask_of(const std::vector<int>& cpus) {
  constexpr int kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    mask.resize(std::max<std::size_t>(mask.size(), cpu / kBits + 1));
    mask[cpu / kBits] |= 1UL << (cpu % kBits);
  }
  return mask;
}

// If the descriptor has the right number already, only clear its close-on-exec flag.
bool put(int fd, int where) {
  return fd == where ? fcntl(fd, F_SETFD, 0) == 0 : dup2(fd, where) >= 0;
}

// Runs in the child, between fork and exec. Returns the error.
Complaint become(const Child& child, const Inherited& inherited, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before PR_SET_PDEATHSIG took effect
  if (child.own_group) setpgid(0, 0);
  if (!put(child.in, 0) || !put(child.out, 1) || !put(child.err, 2))
    return {.deed = "cannot connect ", .hint = "", .reason = errno};
  const auto mask = mask_of(child.cpus);
  // The system call is used because the C library's wrapper takes a fixed number of processors.
  if (!mask.empty() &&
      syscall(SYS_sched_setaffinity, 0, mask.size() * sizeof(mask[0]), mask.data()) < 0)
    return {.deed = "cannot bind ", .hint = " (try --bind none)", .reason = errno};
  setrlimit(RLIMIT_NOFILE, &inherited.files);
  if (!inherited.ignored_sigpipe) signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &inherited.blocked, nullptr);
  execvpe(child.path.c_str(), pointers(child.words).data(), pointers(child.environment).data());
  const char* hint = errno == ENOENT ? " (is its interpreter missing?)" : "";
  return {.deed = "cannot run ", .hint = hint, .reason = errno};
}

}  // namespace

pid_t spawn(const Child& child, const Inherited& inherited) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) base::fail_errno("cannot make a pipe");
  const base::Fd hear(ends[0]);
  base::Fd speak(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) base::fail_errno("cannot start a process");
  if (pid == 0) {
    const Complaint complaint = become(child, inherited, parent);
    [[maybe_unused]] const ssize_t sent = write(speak.get(), &complaint, sizeof complaint);
    _exit(127);
  }
  // Both the parent and the child do it, so that it is done before either continues.
  if (child.own_group) setpgid(pid, pid);
  speak.reset();
  Complaint complaint = {};
  ssize_t got = 0;
  do {
    got = read(hear.get(), &complaint, sizeof complaint);  // nothing, once the program runs
  } while (got < 0 && errno == EINTR);
  if (got != sizeof complaint) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  base::fail(Code::system, complaint.deed, child.words[0], complaint.hint, ": ",
             std::generic_category().message(complaint.reason));
}

}  // namespace plait::launch
