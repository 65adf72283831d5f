#include "base/process.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/text.h"

namespace plait::base {

Fd open_self_pidfd() { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))); }

bool has_ended(const Fd& pidfd, pid_t pid) {
  if (!pidfd) return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd watched = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, 0) == 1 && (watched.revents & POLLIN) != 0;
}

namespace {

// The fields after the name in /proc/PID/stat, whose first is the state. The line reads "1234 (name
// with ) in it) T 1 ...".
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

std::uint64_t start_of(pid_t pid) {
  constexpr std::size_t kStart = 19;  // fields after the state
  const std::string stat = stat_of(pid);
  const auto words = split(stat, ' ');
  const auto start = words.size() > kStart ? parse_int(words[kStart]) : std::nullopt;
  return static_cast<std::uint64_t>(start.value_or(0));
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

namespace {

// One page serves all guards of this process. It is never unmapped, since threads may outlive
// statics.
std::atomic<int>& word_of_this_process() {
  static std::atomic<int>* const word = [] {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* memory =
        ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_errno("cannot map a page");
    if (::madvise(memory, page, MADV_WIPEONFORK) != 0) {
      ::munmap(memory, page);
      fail_errno("cannot have a page wiped in forked children");
    }
    return new (memory) std::atomic<int>(0);
  }();
  return *word;
}

// The last number that this process, or one it was forked from, has used.
std::atomic<int> last_number{0};

}  // namespace

// Memory ordering: relaxed, because no other memory is published through the word.
ForkGuard::ForkGuard() : word_(&word_of_this_process()) {
  auto& word = word_of_this_process();
  maker_ = word.load(std::memory_order_relaxed);
  if (maker_ != 0) return;
  const int fresh = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  // If another thread was first, maker_ becomes the number that it wrote.
  if (word.compare_exchange_strong(maker_, fresh, std::memory_order_relaxed)) maker_ = fresh;
}

}  // namespace plait::base
