// Many ranks over TCP, and ranks that are slow to take what they are told.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/control/address.h"
#include "comm/meet/handshake.h"
#include "comm/tcp_case.h"
#include "conformance/descriptors.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::tcp::Hello;
using comm::tcp::MessageKind;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

using TcpMany = TcpCase;

TEST_F(TcpMany, FortyRanksSumUp) {
  constexpr int kWorld = 40;
  fork_ranks(
      kWorld,
      [&](int rank) {
        Communicator comm = Communicator::connect(options_of(rank, kWorld, job_));
        for (int turn = 0; turn < 5; ++turn) {
          EXPECT_EQ(sum_of_ones(comm), kWorld);
        }
        auto half = comm.split(rank % 2, rank);
        EXPECT_EQ(sum_of_ones(*half), kWorld / 2);
      },
      200);
}

TEST_F(TcpMany, HaveADescriptorForEachPeerAtMost) {
  constexpr int kWorld = 8;
  fork_ranks(kWorld, [&](int rank) {
    const int before = open_descriptors();
    Communicator comm = Communicator::connect(options_of(rank, kWorld, job_));
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 64});
    EXPECT_LE(open_descriptors() - before, kWorld + 1);
    std::vector<Communicator> parts;
    for (int part = 1; part <= 3; ++part) parts.push_back(*comm.split(0, rank));
    EXPECT_LE(open_descriptors() - before, kWorld + 1);
  });
}

// Sockets that say that they are ranks. What rank 0 tells all of them is more than their kernels
// take, and the first ones don't read it.
TEST_F(TcpMany, RanksThatTakeNoWelcomeDelayNoOther) {
  constexpr int kWorld = 300;
  constexpr int kSlow = 30;
  constexpr std::size_t kHosts = 15'800;
  const pid_t rank_0 = ::fork();
  if (rank_0 == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      Communicator::connect(options_of(0, kWorld, job_));
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  Hello hello = {.job = job_,
                 .rank = 0,
                 .to = 0,
                 .world = kWorld,
                 .has_secret = false,
                 .nonce = std::string(32, '0'),
                 .info = comm::tcp::info_of_this_process(1)};
  hello.info.transport = "tcp";
  hello.info.hosts = "127.0.0.1";
  while (hello.info.hosts.size() < kHosts) hello.info.hosts += ",127.0.0.1";
  std::vector<base::Fd> sockets;
  std::vector<pollfd> reading;
  for (hello.rank = 1; hello.rank < kWorld; ++hello.rank) {
    int socket = -1;
    while (socket < 0) socket = call(port_.number);
    sockets.emplace_back(socket);
    ASSERT_TRUE(comm::tcp::send_message(sockets.back(), MessageKind::hello, write(hello)));
    if (hello.rank > kSlow) reading.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  }
  const auto start = Clock::now();
  constexpr std::size_t kLeast = kHosts * (kWorld - 1);  // of a whole welcome
  std::vector<std::size_t> taken(reading.size());
  std::vector<char> bytes(1 << 20);
  for (std::size_t whole = 0; whole < reading.size() && Clock::now() - start < seconds(20);) {
    ::poll(reading.data(), reading.size(), 1000);
    whole = 0;
    for (std::size_t i = 0; i < reading.size(); ++i) {
      const ssize_t count = ::recv(reading[i].fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count > 0) taken[i] += static_cast<std::size_t>(count);
      whole += taken[i] >= kLeast ? 1 : 0;
    }
  }
  EXPECT_LT(Clock::now() - start, seconds(20));  // with a second for each of the slow ones: 30
  ::kill(rank_0, SIGKILL);
  ::waitpid(rank_0, nullptr, 0);
}

// The address toward one of this host's own is that very address.
TEST(TcpAddresses, TheOneTowardTheMeetingComesFirst) {
  const std::vector<std::string> hosts = comm::tcp::local_hosts("");
  ASSERT_FALSE(hosts.empty());
  for (const std::string& host : hosts) {
    if (host == "127.0.0.1" || host == "::1") continue;
    const std::vector<std::string> others = comm::tcp::local_hosts(host);
    EXPECT_EQ(others.front(), host);
    EXPECT_EQ(others.size(), hosts.size());
  }
}

}  // namespace
}  // namespace plait
