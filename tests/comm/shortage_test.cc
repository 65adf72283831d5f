// Ranks whose system refuses something while they set up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/region.h"
#include "comm/meet/connections.h"
#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

// From here on this process can open `few` descriptors more.
void leave_room_for(int few) {
  int highest = 0;
  for (int fd = 0; fd < 256; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
  }
  for (int fd = 0; fd < highest; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::dup2(STDIN_FILENO, fd);
  }
  const rlimit limit = {.rlim_cur = static_cast<rlim_t>(highest + 1 + few),
                        .rlim_max = static_cast<rlim_t>(highest + 1 + few)};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// The error of one rank; empty if there was none.
std::string connect_and_sum(int rank, const std::string& job) {
  try {
    Communicator comm = Communicator::connect({.transport = "shm",
                                               .place = Place{.rank = rank, .world = 3, .job = job},
                                               .timeout = std::chrono::seconds(20)});
    const auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = 64});
    EXPECT_EQ(sum_of_ones(comm), 3);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::system) << "rank " << rank << ": " << error.what();
    return error.what();
  }
}

class Shortage : public testing::TestWithParam<int> {};

// Wherever the shortage strikes, all hear which rank it is and what it lacks, and none waits for
// the deadline. A rank without even its first socket cannot tell the others.
TEST_P(Shortage, OfDescriptorsIsToldToAll) {
  const int poor = GetParam();
  bool enough = false;
  int refused = 0;
  for (int few = poor == 0 ? 2 : 1; few < 40 && !enough; ++few) {
    const std::string job = fresh_job();
    Milestones connected;
    const auto start = std::chrono::steady_clock::now();
    fork_ranks(3, [&](int rank) {
      if (rank == poor) leave_room_for(few);
      const std::string said = connect_and_sum(rank, job);
      if (said.empty()) return connected.reach(0);
      connected.reach(1);
      const std::string who = "rank " + std::to_string(poor);
      EXPECT_TRUE(contains(said, who)) << few << " descriptors, rank " << rank << ": " << said;
      EXPECT_TRUE(contains(said, "Too many open files"))
          << few << " descriptors, rank " << rank << ": " << said;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15)) << few;
    enough = connected.reached(0) == 3;
    refused += connected.reached(1) == 3 ? 1 : 0;
    EXPECT_TRUE(enough || connected.reached(1) == 3) << few << " descriptors: some connected";
  }
  EXPECT_TRUE(enough);
  EXPECT_GE(refused, 3);
}

INSTANTIATE_TEST_SUITE_P(OfRank, Shortage, testing::Values(0, 1, 2),
                         [](const auto& one) { return std::to_string(one.param); });

// It is not the group that the descriptor was sent to that happens to receive it.
TEST(Shortages, OfADescriptorIsToldToItsOwnGroup) {
  fork_ranks(1, [](int /*rank*/) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    const auto connections_over = [](int end) {
      std::vector<base::Fd> sockets;
      sockets.emplace_back(end);
      return std::make_unique<comm::shm::Connections>(std::move(sockets));
    };
    const auto here = connections_over(ends[0]);
    const auto there = connections_over(ends[1]);
    const auto other = there->make_channel();
    const base::Fd file = base::make_anonymous_file("test", 64);
    there->send(other, 0, "with a file", file);
    there->send(other, 0, "without", base::Fd());
    there->send(comm::shm::Connections::kFirst, 0, "first", base::Fd());

    rlimit limit = {};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    base::Message message;
    EXPECT_EQ(here->receive(comm::shm::Connections::kFirst, 0, message), base::Delivery::done);
    EXPECT_EQ(message.bytes, "first");
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    expect_error(Code::system, "Too many open files", [&] { here->receive(other, 0, message); });
    EXPECT_EQ(here->receive(other, 0, message), base::Delivery::done);
    EXPECT_EQ(message.bytes, "without");
  });
}

}  // namespace
}  // namespace plait
