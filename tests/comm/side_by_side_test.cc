// Groups that exist at the same time: of several jobs, of one job, of one process, and of its
// threads.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

TEST(SideBySide, JobsDoNotMeet) {
  const std::string one = fresh_job();
  const std::string two = fresh_job();
  fork_ranks(5, [&](int index) {
    const bool first = index < 2;
    Communicator comm =
        Communicator::connect(first ? shm_options(index, 2, one) : shm_options(index - 2, 3, two));
    for (int round = 0; round < 100; ++round) ASSERT_EQ(sum_of_ones(comm), first ? 2 : 3);
  });
}

TEST(SideBySide, ProcessesOfOneJobConnectAgainAndAgain) {
  const std::string job = fresh_job();
  fork_ranks(3, [&](int rank) {
    std::vector<Communicator> comms;
    for (int round = 0; round < 10; ++round) {
      comms.push_back(Communicator::connect(shm_options(rank, 3, job)));
      // All of them are groups of their own.
      for (Communicator& comm : comms) ASSERT_EQ(sum_of_ones(comm), 3);
    }
    comms.erase(comms.begin() + 2);
    for (Communicator& comm : comms) ASSERT_EQ(sum_of_ones(comm), 3);
  });
}

TEST(SideBySide, ThreadsOfAProcessHaveJobsOfTheirOwn) {
  constexpr int kJobs = 4;
  std::vector<std::string> jobs;
  jobs.reserve(kJobs);
  for (int job = 0; job < kJobs; ++job) jobs.push_back(fresh_job());
  fork_ranks(2, [&](int rank) {
    std::vector<std::jthread> threads;
    threads.reserve(kJobs);
    for (int job = 0; job < kJobs; ++job) {
      threads.emplace_back([&, job] {
        EXPECT_NO_THROW({
          Communicator comm = Communicator::connect(shm_options(rank, 2, jobs[job]));
          for (int round = 0; round < 50; ++round) EXPECT_EQ(sum_of_ones(comm), 2);
          const auto part = comm.split(0, job);
          EXPECT_TRUE(part.has_value());
        });
      });
    }
  });
}

TEST(SideBySide, GroupsOfThreadsDoNotMeet) {
  constexpr int kGroups = 4;
  std::vector<std::jthread> groups;
  groups.reserve(kGroups);
  for (int group = 0; group < kGroups; ++group) {
    groups.emplace_back([group] {
      const int world = 1 + group % 3;
      EXPECT_NO_THROW(run_in_threads(world, [&](Communicator& comm) {
        for (int round = 0; round < 50; ++round)
          EXPECT_EQ(sum_of_ones(comm), static_cast<float>(world));
        auto part = comm.split(comm.rank() % 2, 0);
        barrier(*part);
      }));
    });
  }
}

// One group's end is not another's.
TEST(SideBySide, AFailedGroupLeavesOthersAlone) {
  run_in_processes(3, [](Communicator& comm) {
    auto doomed = comm.split(0, 0);
    if (comm.rank() == 1) doomed->abort("only this one");
    expect_error(Code::peer_lost, [&] {
      for (;;) barrier(*doomed);
    });
    EXPECT_EQ(sum_of_ones(comm), 3);
    auto fresh = comm.split(0, 0);
    EXPECT_EQ(sum_of_ones(*fresh), 3);
  });
}

}  // namespace
}  // namespace plait
