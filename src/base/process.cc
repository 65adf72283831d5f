#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
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
#include "base/close_on_fork.h"
#include "base/text.h"

namespace plait::base {

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

namespace {

// Numbers of words behind the state.
constexpr std::size_t kThreads = 17;
constexpr std::size_t kStart = 19;

std::uint64_t number_in(const std::string& stat, std::size_t word) {
  const auto words = split(stat, ' ');
  const auto number = words.size() > word ? parse_int(words[word]) : std::nullopt;
  return static_cast<std::uint64_t>(number.value_or(0));
}

// A process whose first thread has ended before the others has this state too.
bool is_dead(const std::string& stat) {
  const char state = stat.empty() ? '\0' : stat.front();
  return (state == 'Z' || state == 'X') && number_in(stat, kThreads) <= 1;
}

}  // namespace

std::uint64_t start_of(pid_t pid) { return number_in(stat_of(pid), kStart); }

// If /proc can't be read, such as for want of descriptors, a used pid is no sign of an end.
bool has_ended(const Fd& pidfd, pid_t pid, std::uint64_t start) {
  pollfd watched = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (pidfd && ::poll(&watched, 1, 0) == 0) return false;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::string stat = stat_of(pid);
  return !stat.empty() && (is_dead(stat) || number_in(stat, kStart) != start);
}

Fd open_memory_size(pid_t pid) {
  const CloseOnFork closing;
  const std::string name = "/proc/" + std::to_string(pid) + "/statm";
  return closing.adopt(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
}

// The first number is the size of all of its memory. Of a process that is gone nothing is read.
bool may_be_ending(const Fd& memory_size) {
  char first = '0';
  return ::pread(memory_size.get(), &first, 1, 0) != 1 || first == '0';
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
