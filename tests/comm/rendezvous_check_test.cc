// Ranks of which some use mpi, and others tcp, and that can see each other only where tcp's rank 0
// listens, or would listen.
#include "comm/meet/rendezvous_check.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "plait/collectives.h"

namespace plait::comm::tcp {
namespace {

using Clock = std::chrono::steady_clock;

class RendezvousCheckTest : public TcpCase {
 protected:
  // Waits as a rank that meets the others by MPI.
  void meet_by_mpi(int rank, int world, std::chrono::milliseconds patience) const {
    RendezvousCheck check(
        {.place = {.rank = rank, .world = world, .job = job_}, .transport = "mpi"});
    const auto end = Clock::now() + patience;
    while (Clock::now() < end) {
      check.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void expect_mismatch(const std::vector<std::string>& transports, const std::string& sentence) {
    const int world = static_cast<int>(transports.size());
    fork_ranks(world, [&](int rank) {
      const Error error = expect_error(Code::mismatch, [&] {
        if (transports[rank] == "mpi") return meet_by_mpi(rank, world, std::chrono::seconds(30));
        Communicator::connect(options_of(rank, world, job_, transports[rank]));
      });
      EXPECT_EQ(error.what(), sentence + ": PLAIT_TRANSPORT must be the same for all ranks");
    });
  }

  void expect_mismatches() {
    expect_mismatch({"tcp", "mpi"}, "rank 1 uses the transport mpi, rank 0 tcp");
    expect_mismatch({"mpi", "tcp"}, "rank 1 uses the transport tcp, rank 0 mpi");
    expect_mismatch({"tcp", "tcp", "mpi"}, "rank 2 uses the transport mpi, rank 0 tcp");
    expect_mismatch({"mpi", "mpi", "tcp"}, "rank 2 uses the transport tcp, rank 0 mpi");
  }
};

TEST_F(RendezvousCheckTest, RanksOfMpiAndOfTcpRefuseEachOther) { expect_mismatches(); }

TEST_F(RendezvousCheckTest, RanksOfMpiAndOfTcpRefuseEachOtherWithASecret) {
  environment_.set("PLAIT_SECRET", "it is quite a secret");
  expect_mismatches();
}

// Rank 0 stays for two seconds to tell rank 3, which has not come yet. The others connect again at
// once, all by tcp.
TEST_F(RendezvousCheckTest, RanksThatKnowOfARefusalConnectAgain) {
  Milestones failed;
  fork_ranks(4, [&](int rank) {
    if (rank == 3) {
      failed.await(0);
    } else {
      expect_error(Code::mismatch, [&] {
        if (rank != 2) return meet_by_mpi(rank, 4, std::chrono::seconds(30));
        Communicator::connect(options_of(rank, 4, job_));
      });
      if (rank == 0) failed.reach(0);
    }
    Communicator comm = Communicator::connect(options_of(rank, 4, job_));
    EXPECT_EQ(sum_of_ones(comm), 4);
  });
}

TEST_F(RendezvousCheckTest, RanksThatAllUseMpiAreLeftAlone) {
  fork_ranks(3, [&](int rank) { meet_by_mpi(rank, 3, std::chrono::seconds(2)); });
}

// The check is no condition of meeting.
TEST_F(RendezvousCheckTest, NothingIsCheckedWhereItCannotBe) {
  const Port taken;
  ASSERT_EQ(::listen(taken.socket, 1), 0);
  const std::vector<Environment::Variables> surroundings = {
      {{"PLAIT_RENDEZVOUS", taken.address()}},
      {{"PLAIT_RENDEZVOUS", "no.such.host.invalid:1"}},
      {{"PLAIT_RENDEZVOUS", "nonsense"}},
      {{"PLAIT_RENDEZVOUS", port_.address()}, {"PLAIT_SECRET", "short"}},
      {{"PLAIT_RENDEZVOUS", port_.address()}, {"PLAIT_INTERFACE", "eth77"}}};
  for (const auto& variables : surroundings) {
    const Environment environment(variables);
    fork_ranks(2, [&](int rank) { meet_by_mpi(rank, 2, std::chrono::milliseconds(700)); });
  }
  taken.give_back();
}

}  // namespace
}  // namespace plait::comm::tcp
