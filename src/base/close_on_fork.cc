#include "base/close_on_fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace plait::base {
namespace {

// Held by whoever opens or closes such a descriptor, and across every fork(). Recursive, since one
// may be closed where another is opened.
std::recursive_mutex*& place_of_mutex() {
  static auto* mutex = new std::recursive_mutex;  // a fork may come while statics go
  return mutex;
}
std::recursive_mutex& forks() { return *place_of_mutex(); }

// A bit for each descriptor's number; higher numbers are beyond the usual hard limit.
constexpr std::size_t kNumbers = 65536;
constexpr std::size_t kBits = 64;
std::array<std::atomic<std::uint64_t>, kNumbers / kBits> adopted;
std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (fd % kBits); }

// Memory ordering: relaxed. The mutex orders adopting before a fork, and a child has one thread.
void close_in_child() {
  int null = -1;
  for (std::size_t word = 0; word < adopted.size(); ++word) {
    std::uint64_t bits = adopted[word].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      const int fd = static_cast<int>(word * kBits) + std::countr_zero(bits);
      // The first one's number is given back before /dev/null needs one.
      if (null < 0) {
        ::close(fd);
        null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      }
      if (null < 0) {
        ::close(fd);
      } else if (null != fd) {
        ::dup3(null, fd, O_CLOEXEC);
      }
    }
  }
  // The old one stays locked: to the C library the child is another thread than the one that has
  // locked it. A child has one thread, so nothing reads the pointer meanwhile.
  place_of_mutex() = new std::recursive_mutex;
}

void lock_forks() { forks().lock(); }
void unlock_forks() { forks().unlock(); }

}  // namespace

CloseOnFork::CloseOnFork() {
  static const int watched = ::pthread_atfork(lock_forks, unlock_forks, close_in_child);
  static_cast<void>(watched);  // without memory for it, children keep the descriptors
  forks().lock();
}

CloseOnFork::~CloseOnFork() { forks().unlock(); }

Fd CloseOnFork::adopt(int fd) const {
  if (fd >= 0 && static_cast<std::size_t>(fd) < kNumbers) {
    adopted[fd / kBits].fetch_or(bit_of(fd), std::memory_order_relaxed);
  }
  return Fd(fd);
}

// Forgotten before it is closed, since the next file with this number may be anybody's; and no
// fork() comes between the two.
void Fd::close(int fd) {
  const bool in_range = static_cast<std::size_t>(fd) < kNumbers;
  if (!in_range || (adopted[fd / kBits].load(std::memory_order_relaxed) & bit_of(fd)) == 0) {
    ::close(fd);
    return;
  }
  const std::lock_guard lock(forks());
  adopted[fd / kBits].fetch_and(~bit_of(fd), std::memory_order_relaxed);
  ::close(fd);
}

}  // namespace plait::base
