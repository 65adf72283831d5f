#include "base/process.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

#include "base/check.h"

namespace plait::base {

Fd open_self_pidfd() { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))); }

bool has_ended(const Fd& pidfd, pid_t pid) {
  if (!pidfd) return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd watched = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, 0) == 1 && (watched.revents & POLLIN) != 0;
}

namespace {

// What /proc says of it behind its name, "1234 (name with ) in it) T 1 ...": the state first.
std::string stat_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto at = stat.rfind(") ");
  return at == std::string::npos ? "" : stat.substr(at + 2);
}

}  // namespace

pid_t parent_of(pid_t pid) {
  std::istringstream words(stat_of(pid));
  std::string state;
  pid_t parent = 0;
  words >> state >> parent;
  return parent;
}

const char* state_of(pid_t pid) {
  const std::string stat = stat_of(pid);
  const char state = stat.empty() ? '\0' : stat.front();
  switch (state) {
    case 'R':
      return "running";
    case 'S':
    case 'D':
      return "sleeping";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "dead";
    default:
      return "";
  }
}

ForkGuard::ForkGuard() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_errno("cannot map a page");
  if (::madvise(memory, page, MADV_WIPEONFORK) != 0) {
    ::munmap(memory, page);
    fail_errno("cannot have a page wiped in forked children");
  }
  word_ = static_cast<int*>(memory);
  *word_ = 1;
}

ForkGuard::~ForkGuard() { ::munmap(word_, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))); }

}  // namespace plait::base
