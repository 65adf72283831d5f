#include "base/close_on_fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace plait::base {
namespace {

// A thread holds it while it opens or closes such a descriptor, and the forking thread holds it
// during fork(). It is recursive because one descriptor may be closed while another is opened.
struct Forks {
  std::recursive_mutex mutex;
  const Forks* parents;  // the parent's, so that none is taken for lost memory
};
Forks*& place_of_forks() {
  // never destroyed: a fork may come while statics are destroyed
  static auto* forks = new Forks{.mutex = {}, .parents = nullptr};
  return forks;
}
std::recursive_mutex& forks() { return place_of_forks()->mutex; }

// One bit per descriptor number. Higher numbers are beyond the usual hard limit.
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
      // Closing the first descriptor frees a number for /dev/null to use.
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
  // The old mutex stays locked, because the C library sees the child as a thread other than the one
  // that locked it. A child has one thread, so nothing reads the pointer meanwhile.
  place_of_forks() = new Forks{.mutex = {}, .parents = place_of_forks()};
}

void lock_forks() { forks().lock(); }
void unlock_forks() { forks().unlock(); }

}  // namespace

CloseOnFork::CloseOnFork() {
  static const int watched = ::pthread_atfork(lock_forks, unlock_forks, close_in_child);
  static_cast<void>(watched);  // without memory for the handlers, children keep the descriptors
  forks().lock();
}

CloseOnFork::~CloseOnFork() { forks().unlock(); }

namespace {

// A program may have closed its standard descriptors. What takes their numbers would get all that
// the program prints, and be read as its input.
int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

}  // namespace

Fd CloseOnFork::adopt(int fd) const {
  fd = above_standard(fd);
  if (fd >= 0 && static_cast<std::size_t>(fd) < kNumbers) {
    adopted[fd / kBits].fetch_or(bit_of(fd), std::memory_order_relaxed);
  }
  return Fd(fd);
}

// The bit is cleared before the descriptor is closed, since another file may get the number at
// once. The mutex keeps fork() from coming between the two.
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
