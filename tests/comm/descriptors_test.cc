// Ranks whose host program closes descriptors that it has not opened, as programs do that become
// daemons (os.closerange() in Python); and what connecting again and again leaves open.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <string>
#include <thread>

#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

constexpr int kMost = 1024;

// If true, their numbers belong to other files afterwards, which can always be read.
class ClosesAll : public testing::TestWithParam<bool> {
 protected:
  static void close_all() {
    for (int fd = STDERR_FILENO + 1; fd < kMost; ++fd) ::close(fd);
    if (!GetParam()) return;
    for (int fd = STDERR_FILENO + 1; fd < 64; ++fd) ASSERT_EQ(::open("/dev/zero", O_RDONLY), fd);
  }
};

INSTANTIATE_TEST_SUITE_P(Descriptors, ClosesAll, testing::Bool(), [](const auto& one) {
  return std::string(one.param ? "AndOpensOthers" : "AndNoMore");
});

constexpr std::chrono::milliseconds kSeveralLooks{150};

TEST_P(ClosesAll, AndGoesOn) {
  const std::string job = fresh_job();
  fork_ranks(3, [&](int rank) {
    Communicator comm = Communicator::connect(shm_options(rank, 3, job));
    EXPECT_EQ(sum_of_ones(comm), 3);
    if (rank == 1) close_all();
    // Each in its turn comes late, so that all others look whether it lives.
    for (int late = 0; late < 3; ++late) {
      if (rank == late) std::this_thread::sleep_for(kSeveralLooks);
      EXPECT_EQ(sum_of_ones(comm), 3);
    }
  });
}

// The deadline is minutes away: a rank that doesn't notice makes the test fail by its own.
TEST_P(ClosesAll, AndADeathIsNoticed) {
  for (const int dies : {0, 1, 2}) {
    const std::string job = fresh_job();
    Milestones summed_up;
    fork_ranks(3, [&](int rank) {
      Communicator comm = Communicator::connect(shm_options(rank, 3, job));
      EXPECT_EQ(sum_of_ones(comm), 3);
      if (rank == 1) close_all();
      EXPECT_EQ(sum_of_ones(comm), 3);
      summed_up.reach(0);
      if (rank == dies) {
        summed_up.await(0, 3);  // a rank that is still in the sum would get the error there
        ::_exit(0);             // as good as killed: nothing is destroyed
      }
      expect_error(Code::peer_lost, dies, "has died", [&] { sum_of_ones(comm); });
    });
  }
}

// Both look for themselves: the third, which could tell the one that has closed all, waits for
// none.
TEST_P(ClosesAll, AndNoticesADeathByItself) {
  const std::string job = fresh_job();
  Milestones has_closed;
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(shm_options(rank, 2, job));
    EXPECT_EQ(sum_of_ones(comm), 2);
    if (rank == 1) {
      has_closed.await(0);
      ::_exit(0);
    }
    close_all();
    has_closed.reach(0);
    expect_error(Code::peer_lost, 1, "has died", [&] { sum_of_ones(comm); });
  });
}

// A set-up needs sockets, and this rank has none. It is not called dead.
TEST_P(ClosesAll, AndCanSetUpNothingMore) {
  const std::string job = fresh_job();
  fork_ranks(3, [&](int rank) {
    Communicator comm = Communicator::connect(shm_options(rank, 3, job));
    EXPECT_EQ(sum_of_ones(comm), 3);
    if (rank == 1) close_all();
    try {
      comm.split(0, 0);
      ADD_FAILURE() << "rank " << rank << " made a group";
    } catch (const Error& error) {
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(contains(error.what(), "rank 1 (pid ")) << error.what();
      EXPECT_FALSE(contains(error.what(), "died")) << error.what();
    }
  });
}

int count_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST(Descriptors, OfAProcessThatIsSeveralRanksDoNotAddUp) {
  const auto connect_once = [] {
    const std::string job = fresh_job();
    const auto be_rank = [&](int rank) {
      Communicator comm = Communicator::connect(shm_options(rank, 2, job));
      EXPECT_EQ(sum_of_ones(comm), 2);
    };
    const std::jthread other(be_rank, 1);
    be_rank(0);
  };
  connect_once();
  const int before = count_descriptors();
  for (int round = 0; round < 50; ++round) connect_once();
  EXPECT_EQ(count_descriptors(), before);
}

}  // namespace
}  // namespace plait
