#include "base/close_on_fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/region.h"
#include "base/socket.h"

namespace plait::base {
namespace {

// Checks a condition in a forked child, which may only do what is safe while the parent has other
// threads.
bool in_a_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = 1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

std::string_view target_of(int fd, std::array<char, 256>& text) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(path.data(), text.data(), text.size());
  return {text.data(), length < 0 ? 0 : static_cast<std::size_t>(length)};
}

bool has_descriptor_of(std::string_view what) {
  std::array<char, 256> text{};
  for (int fd = 0; fd < 256; ++fd) {
    if (target_of(fd, text).starts_with(what)) return true;
  }
  return false;
}

class Worker {
 public:
  Worker() : pid_(::fork()) {
    if (pid_ != 0) return;
    for (;;) ::pause();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

TEST(CloseOnFork, AChildHasDevNullInstead) {
  const CloseOnFork closing;
  const Fd one = closing.adopt(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  const Fd two = closing.adopt(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  const Fd other(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  EXPECT_TRUE(in_a_child([&] {
    std::array<char, 256> text{};
    return target_of(one.get(), text) == "/dev/null" && target_of(two.get(), text) == "/dev/null" &&
           target_of(other.get(), text).starts_with("socket:") &&
           (::fcntl(two.get(), F_GETFD) & FD_CLOEXEC) != 0;
  }));
  std::array<char, 256> text{};
  EXPECT_TRUE(target_of(one.get(), text).starts_with("socket:"));
}

TEST(CloseOnFork, AClosedOnesNumberIsAnybodys) {
  CloseOnFork().adopt(::socket(AF_UNIX, SOCK_SEQPACKET, 0)).reset();
  const Fd other(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  EXPECT_TRUE(in_a_child([&] {
    std::array<char, 256> text{};
    return target_of(other.get(), text).starts_with("socket:");
  }));
}

TEST(CloseOnFork, AWorkerHoldsNoListenersName) {
  const std::string name = "plait-fork-test-" + std::to_string(::getpid());
  auto listener = listen_at(name);
  const Worker worker;
  listener.reset();
  // The worker closes it as soon as it runs.
  for (int tries = 0; tries < 20'000 && connect_to(name); ++tries) ::usleep(1000);
  EXPECT_FALSE(connect_to(name).has_value());
  EXPECT_TRUE(listen_at(name).has_value());
}

TEST(CloseOnFork, AWorkerHoldsNoSharedMemory) {
  const Fd file = make_anonymous_file("fork-test", 8192);
  const Region region = Region::map(file, 8192, "rank 0");
  EXPECT_TRUE(has_descriptor_of("/memfd:fork-test"));
  EXPECT_TRUE(in_a_child([] { return !has_descriptor_of("/memfd:fork-test"); }));
  EXPECT_TRUE(in_a_child([&] {
    // mincore() succeeds for mapped pages and fails for others.
    unsigned char resident = 0;
    return ::mincore(region.data(), 4096, &resident) != 0;
  }));
}

// The other thread may be at any point, for example between a system call and recording its result.
TEST(CloseOnFork, HoldsAtEveryMoment) {
  std::atomic<bool> over = false;
  std::jthread busy([&] {
    const std::string prefix = "plait-race-test-" + std::to_string(::getpid()) + '-';
    for (int round = 0; !over; ++round) {
      const Fd file = make_anonymous_file("race-test", 4096);
      const std::string name = prefix + std::to_string(round);
      const auto listener = listen_at(name);
      const auto caller = connect_to(name);
      const auto host = accept_from(*listener);
      send_message(*caller, "take", file);
      Message message;
      receive_message(*host, message);
      std::this_thread::yield();  // to the other thread, if it waits to fork
    }
  });
  int wrong = 0;
  for (int i = 0; i < 100; ++i) {
    wrong += in_a_child([] {
      return !has_descriptor_of("/memfd:race-test") && !has_descriptor_of("socket:");
    })
                 ? 0
                 : 1;
  }
  over = true;
  EXPECT_EQ(wrong, 0);
}

TEST(CloseOnFork, NothingTakesTheNumberOfAStandardDescriptor) {
  EXPECT_TRUE(in_a_child([] {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
    const Fd file = make_anonymous_file("standard-test", 4096);
    const std::string name = "plait-standard-test-" + std::to_string(::getpid());
    const auto listener = listen_at(name);
    const auto caller = connect_to(name);
    const auto host = accept_from(*listener);
    for (const int fd : {file.get(), listener->get(), caller->get(), host->get()}) {
      if (fd <= STDERR_FILENO) return false;
    }
    return ::write(STDOUT_FILENO, "text", 4) == -1 && errno == EBADF &&
           ::fcntl(host->get(), F_GETFD) == FD_CLOEXEC;
  }));
}

// Memory that a child maps at the same address must survive the destruction of the inherited
// region.
TEST(Region, AChildThatDropsItUnmapsNothingOfItsOwn) {
  Region region = Region::allocate(1 << 20);
  EXPECT_TRUE(in_a_child([&] {
    void* own = ::mmap(region.data(), region.bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (own != region.data()) return false;
    region = Region();
    unsigned char resident = 0;
    return ::mincore(own, 4096, &resident) == 0;
  }));
}

}  // namespace
}  // namespace plait::base
