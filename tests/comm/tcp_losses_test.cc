// How ranks over TCP meet, and what they hear of one that is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/host.h"
#include "base/process_mark.h"
#include "comm/meet/handshake.h"
#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "comm/victim.h"
#include "plait/all_to_all_rows.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::tcp::info_of_this_process;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

using Tcp = TcpCase;

TEST_F(Tcp, NamesARankThatNeverComes) {
  CommunicatorOptions options = options_of(0, 3, job_);
  options.timeout = milliseconds(300);
  const Error error = expect_error(Code::timeout, [&] { Communicator::connect(options); });
  EXPECT_EQ(error.culprit(), 1);
  EXPECT_EQ(error.what(),
            "ranks 1 and 2 of 3 have not come within 300 ms; rank 0 uses the transport tcp and "
            "listens on " +
                info_of_this_process(1).name + " at port " + std::to_string(port_.number) +
                ": check PLAIT_TRANSPORT and the address of rank 0 on the others");
}

class TcpWithoutRankZero : public TcpCase {
 protected:
  // Expects rank 1's error if it can't meet rank 0 within a second; `outcome`: of its last call.
  void expect_that_it_is_not_met(const std::string& outcome) {
    CommunicatorOptions options = options_of(1, 2, job_);
    options.timeout = seconds(1);
    const auto begin = Clock::now();
    const Error error = expect_error(Code::timeout, [&] { Communicator::connect(options); });
    EXPECT_LT(Clock::now() - begin, seconds(10));
    EXPECT_EQ(error.culprit(), 0);
    EXPECT_EQ(error.what(),
              "rank 0 of 2 has not been met at " + port_.address() +
                  " within 1 s; the last call, to 127.0.0.1: " + outcome +
                  "; check that rank 0 runs there and uses the transport tcp, that no other "
                  "program has this port and that no firewall closes it");
  }
};

TEST_F(TcpWithoutRankZero, SaysThatNoProcessListens) {
  expect_that_it_is_not_met("Connection refused");
}

// On its own host a rank sees that rank 0 has ended, and need not wait for another one.
TEST_F(TcpWithoutRankZero, SaysAtOnceThatItHasEnded) {
  ASSERT_EQ(::listen(port_.socket, 8), 0);
  const Helper zero([&] {
    const base::Fd caller(::accept(port_.socket, nullptr, nullptr));
    send_message(caller, comm::tcp::MessageKind::mark,
                 base::host_id() + ' ' + base::mark_of_this_process());
    ::shutdown(port_.socket, SHUT_RDWR);  // it listens no more
  });
  const auto begin = Clock::now();
  const Error error =
      expect_error(Code::peer_lost, [&] { Communicator::connect(options_of(1, 2, job_)); });
  EXPECT_LT(Clock::now() - begin, seconds(30));
  EXPECT_EQ(error.culprit(), 0);
  EXPECT_TRUE(contains(error.what(), ", at " + port_.address() +
                                         ") has died or given up while the group was assembling"))
      << error.what();
}

// Their times end at different moments: after 2 s, 2.1 s and 4 s.
TEST_F(Tcp, AllRanksNameTheRankThatNeverComes) {
  for (const bool is_first_the_last : {true, false}) {
    fork_ranks(3, [&](int rank) {
      const std::array timeouts = {milliseconds(is_first_the_last ? 4000 : 2000),
                                   milliseconds(2100),
                                   milliseconds(is_first_the_last ? 2000 : 4000)};
      CommunicatorOptions options = options_of(rank, 4, job_);
      options.timeout = timeouts[rank];
      const auto begin = Clock::now();
      const Error error = expect_error(Code::timeout, [&] { Communicator::connect(options); });
      EXPECT_EQ(error.culprit(), 3);
      EXPECT_TRUE(contains(error.what(), "rank 3 of 4 has not come within ")) << error.what();
      EXPECT_TRUE(contains(error.what(), "rank 0 uses the transport tcp")) << error.what();
      EXPECT_LT(Clock::now() - begin, timeouts[rank] + seconds(2));
    });
  }
}

// All learn of it long before their deadline.
TEST_F(Tcp, NamesTwoProcessesThatClaimOneRank) {
  fork_ranks(3, [&](int process) {
    const CommunicatorOptions options = options_of(process == 0 ? 0 : 1, 3, job_);
    const auto begin = Clock::now();
    const Error error = expect_error(Code::mismatch, [&] { Communicator::connect(options); });
    EXPECT_LT(Clock::now() - begin, seconds(20));
    EXPECT_TRUE(contains(error.what(), "two processes (pid ")) << error.what();
    EXPECT_TRUE(contains(error.what(), ") claim rank 1 of 3")) << error.what();
  });
}

TEST_F(Tcp, MeetsOverIpv6) {
  const Environment environment(
      Environment::Variables{{"PLAIT_RENDEZVOUS", "[::1]:" + std::to_string(port_.number)}});
  fork_ranks(3, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 3, job_));
    EXPECT_EQ(sum_of_ones(comm), 3);
  });
}

TEST_F(Tcp, RefusesAPortThatIsTaken) {
  const Port taken;
  ::listen(taken.socket, 1);
  const Environment environment(Environment::Variables{{"PLAIT_RENDEZVOUS", taken.address()}});
  expect_error(Code::invalid_argument,
               "port " + std::to_string(taken.number) +
                   " of this host is taken, perhaps by another job, or by "
                   "another rank 0 of this one",
               [&] { Communicator::connect(options_of(0, 2, job_)); });
  taken.give_back();
}

TEST_F(Tcp, RefusesAnAddressThatIsNone) {
  for (const char* text : {"node1", "node1:", ":29600", "node1:0", "node1:65536", "node1:x",
                           "tcp://node1:29600", "fd00::1", "[fd00::1]", "fd00::1:29600"}) {
    const Environment environment(Environment::Variables{{"PLAIT_RENDEZVOUS", text}});
    const Error error = expect_error(Code::invalid_argument,
                                     [&] { Communicator::connect(options_of(1, 2, job_)); });
    EXPECT_EQ(error.what(), std::string("PLAIT_RENDEZVOUS=") + text +
                                " is not like HOST:PORT, as in node1:29600 or "
                                "[fd00::1]:29600");
  }
}

TEST_F(Tcp, RefusesAHostThatCannotBeFound) {
  const std::string name(64, 'x');  // longer than a name may be, so that no server is asked
  const Environment environment(Environment::Variables{{"PLAIT_RENDEZVOUS", name + ":29600"}});
  CommunicatorOptions options = options_of(1, 2, job_);
  options.timeout = milliseconds(300);
  expect_error(Code::invalid_argument, "rank 1 cannot find host \"" + name + '"',
               [&] { Communicator::connect(options); });
}

// Calls again and again: silently, with nonsense, like a rank that goes on strangely, or only to
// go.
[[noreturn]] void flood(int port) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<int> silent;
  for (int i = 0;; ++i) {
    const int socket = call(port);
    if (socket < 0) {
      std::this_thread::sleep_for(milliseconds(1));
      continue;
    }
    const std::string nonsense(static_cast<std::size_t>(i % 7) * 1000, 'x');
    ::send(socket, nonsense.data(), nonsense.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (i % 3 == 0) ::send(socket, "HTLP\0\0\0\0\xff\xff\xff\xff", 12, MSG_NOSIGNAL);
    if (i % 2 == 0 && silent.size() < 200) {
      silent.push_back(socket);
    } else {
      ::close(socket);
    }
  }
}

// The flood is another process: a fork beside a thread that allocates may not end with a sanitizer.
TEST_F(Tcp, CallersThatAreNoRanksCostTheJobNothing) {
  const pid_t flooding = ::fork();
  if (flooding == 0) flood(port_.number);
  fork_ranks(3, [&](int rank) {
    std::this_thread::sleep_for(milliseconds(100 * rank));
    Communicator comm = Communicator::connect(options_of(rank, 3, job_));
    EXPECT_EQ(sum_of_ones(comm), 3);
  });
  ::kill(flooding, SIGKILL);
  ::waitpid(flooding, nullptr, 0);
}

TEST_F(Tcp, AConnectThatFailedMayBeTriedAgain) { connect_after_a_failure("tcp", job_); }

// The other rank has failed and gone before this one has read why.
TEST_F(Tcp, HearsWhyARankHasFailedThoughItIsGone) {
  Milestones gone;
  fork_ranks(2, [&](int rank) {
    {
      Communicator comm = Communicator::connect(options_of(rank, 2, job_));
      Mailbox& mailbox = comm.cached_mailbox({.slots = 4, .slot_bytes = 100'000});
      barrier(comm);
      if (rank == 0) {
        comm.abort("the test says so");
      } else {
        gone.await(0);
        expect_error(Code::peer_lost, 0, "the test says so", [&] {
          for (int slot = 0; slot < 4; ++slot) {
            mailbox.post(0, slot, {}, 100'000);
            mailbox.post(0, slot, {}, 100'000);
          }
          barrier(comm);
        });
      }
    }
    if (rank == 0) gone.reach(0);
  });
}

// Each waits for the other's data, so that no chunk says which call its sender is in.
TEST_F(Tcp, TellsRanksThatAreInDifferentCallsLongBeforeTheDeadline) {
  const auto body = [&](Communicator& comm) {
    barrier(comm);
    std::vector<float> data(8);
    const auto start = Clock::now();
    expect_error(Code::mismatch, "disagree on root",
                 [&] { broadcast({data.data(), data.size()}, 1 - comm.rank(), comm); });
    EXPECT_LT(Clock::now() - start, seconds(20));
  };
  run_over_tcp(2, body, {.timeout = seconds(60)});
}

TEST_F(Tcp, WhatALeavingRankHasSentIsThereForARankThatComesLate) {
  expect_that_a_leaving_rank_is_heard("tcp", job_);
}

TEST_F(Tcp, MeetsThroughACallersAllGather) {
  constexpr int kWorld = 3;
  const Store store(kWorld);
  fork_ranks(kWorld, [&](int rank) {
    CommunicatorOptions options = options_of(rank, kWorld, job_);
    options.all_gather = store.all_gather(rank);
    Communicator comm = Communicator::connect(options);
    EXPECT_EQ(sum_of_ones(comm), kWorld);
  });
}

// A rank that takes nothing costs the others one deadline, however many groups they leave.
TEST_F(Tcp, LeavingIsBoundedBesideARankThatTakesNothing) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const pid_t stopped = ::fork();
  const int rank = stopped == 0 ? 1 : 0;
  {
    CommunicatorOptions options = options_of(rank, 2, job_);
    options.timeout = seconds(2);
    Communicator comm = Communicator::connect(options);
    auto part = comm.split(0, 0);
    auto again = comm.split(0, 0);
    Mailbox& mailbox = comm.cached_mailbox({.slots = 1, .slot_bytes = kBytes});
    barrier(comm);
    if (rank == 1) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(stopped, &status, WUNTRACED), stopped);
    mailbox.post(1, 0, {}, kBytes);
    const auto start = Clock::now();
    again.reset();
    part.reset();
    {
      const Communicator gone = std::move(comm);
    }
    EXPECT_LT(Clock::now() - start, seconds(5));
  }
  ::kill(stopped, SIGKILL);
  ::waitpid(stopped, nullptr, 0);
}

TEST_F(Tcp, NamesAKilledRankLongBeforeTheDeadline) {
  run_with_a_victim({"tcp", job_, SIGKILL, seconds(60)});
}

TEST_F(Tcp, NamesAStoppedRankAtTheDeadline) {
  run_with_a_victim({"tcp", job_, SIGSTOP, milliseconds(1000)});
}

TEST_F(Tcp, NamesAKilledRankNearAndFar) {
  run_with_a_victim({"tcp", job_, SIGKILL, seconds(60), {0, 1, 1}});
}

// It has told no rank how many rows it has.
TEST_F(Tcp, NamesAKilledRankWhoseRowsAreAwaited) {
  const auto send_rows = [](Communicator& comm) {
    const std::vector<float> rows(3);
    ReceivedRows received;
    all_to_all_rows(ConstTensorView::of(rows.data(), 3, 1), std::vector<std::int64_t>(3, 1),
                    received, comm);
  };
  run_with_a_victim({"tcp", job_, SIGKILL, seconds(60), {0, 1, 1}, send_rows});
}

TEST_F(Tcp, NamesAStoppedRankNearAndFar) {
  run_with_a_victim({"tcp", job_, SIGSTOP, milliseconds(1000), {0, 1, 1}});
}

}  // namespace
}  // namespace plait
