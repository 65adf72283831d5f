// Ranks that end in good order without destroying their communicators, as programs do that keep
// them in global variables.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "comm/milestones.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

// Never destroyed.
Communicator& connect_for_good(const CommunicatorOptions& options) {
  static Communicator* comm = nullptr;
  comm = std::make_unique<Communicator>(Communicator::connect(options)).release();
  return *comm;
}

// Ranks 0 and 2 go on without rank 1, which ends; then they need it.
void go_on_without_rank_1(const std::function<void(Communicator& comm)>& end) {
  const std::string job = fresh_job();
  Milestones gone;
  fork_ranks(4, [&](int index) {
    if (index == 3) {  // finds out whether rank 1 is gone
      gone.await(0);
      gone.await(1);
      return;
    }
    Communicator& comm = connect_for_good(shm_options(index, 3, job));
    Mailbox& line = comm.cached_mailbox({.slots = 1, .slot_bytes = 8});
    barrier(comm);
    if (index == 1) {
      gone.reach(0);
      gone.reach(1);
      return end(comm);
    }
    gone.await(1);
    ::usleep(300'000);  // for the process to end
    const int other = 2 - index;
    for (int round = 0; round < 5; ++round) {
      ::usleep(20'000 * index);  // one of them waits, and so polls its peers
      line.post(other, 0, {}, 8);
      line.wait_arrived(other, 0, {});
      line.release(other, 0);
    }
    expect_error(Code::peer_lost, 1, "has left the group", [&] { barrier(comm); });
  });
}

TEST(Exit, LeavesWhatWasNotDestroyed) {
  go_on_without_rank_1(
      [](Communicator& /*comm*/) { std::exit(0); });  // NOLINT: it is what is tried
}

TEST(Exit, LeavesSubGroupsToo) {
  const std::string job = fresh_job();
  Milestones parted;
  fork_ranks(3, [&](int rank) {
    Communicator& comm = connect_for_good(shm_options(rank, 3, job));
    static std::optional<Communicator> part;
    part = comm.split(0, 0);
    barrier(*part);
    parted.reach(0);
    if (rank == 1) std::exit(0);  // NOLINT: it is what is tried
    parted.await(0, 3);
    expect_error(Code::peer_lost, "has left the group", [&] { barrier(*part); });
    part.reset();
  });
}

TEST(Exit, CanBeSaidBeforeAnEndThatRunsNothing) {
  go_on_without_rank_1([](Communicator& comm) {
    leave_all();
    leave_all();  // once is enough
    expect_error(Code::invalid_argument, "rank 1 has left its groups", [&] { barrier(comm); });
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

// The program may destroy them afterwards, in what runs later at its end.
TEST(Exit, LeavesDestructionAlone) {
  run_in_threads(2, [](Communicator& comm) {
    {
      std::optional<Communicator> part = comm.split(0, 0);
      barrier(*part);
    }
    barrier(comm);
  });
  const ThreadGroup group(1);
  Communicator comm = group.join(0);
  leave_all();
  expect_error(Code::invalid_argument, [&] { barrier(comm); });
  Communicator next = ThreadGroup(1).join(0);  // one that is made later is no part of it
  barrier(next);
}

// A worker that ends as processes do has the parent's handlers, and must not leave in its name.
TEST(Exit, OfAForkedChildDisturbsNobody) {
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    Communicator& comm = connect_for_good(shm_options(rank, 2, job));
    const pid_t child = ::fork();
    if (child == 0) {
      // It may have a group of its own.
      Communicator& own = connect_for_good(shm_options(0, 1, fresh_job()));
      barrier(own);
      std::exit(0);  // NOLINT: it is what is tried
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    for (int round = 0; round < 10; ++round) barrier(comm);
  });
}

}  // namespace
}  // namespace plait
