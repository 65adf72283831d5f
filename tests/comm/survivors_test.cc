// The ranks that are left when others are lost: what survivors() tells them, and what it refuses.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/survivors.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"
#include "plait/communicator.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<int>;

const RankMaker kShm = {.name = "shm", .run = run_in_processes};
const RankMaker kTcp = {.name = "tcp", .run = run_over_tcp, .sees_calls = false};

// This is as good as a kill: nothing is destroyed, and the kernel closes what the process had.
[[noreturn]] void die() { ::_exit(testing::Test::HasFailure() ? 1 : 0); }

float sum_of(float mine, Communicator& comm) {
  all_reduce({&mine, 1}, comm);
  return mine;
}

// Calls until one fails, because a rank is lost.
void work_until_a_loss(Communicator& comm) {
  const Error error = expect_error(Code::peer_lost, [&] {
    for (;;) barrier(comm);
  });
  EXPECT_NE(error.culprit(), Error::kNoRank);
}

// The rank that dies does so after its first call. Others may still be in it.
void lose(int victim, Communicator& comm) {
  if (comm.rank() != victim) return work_until_a_loss(comm);
  barrier(comm);
  die();
}

// Numbers that the processes of a test share, each written by one of them.
class Numbers {
 public:
  Numbers() {
    void* memory = ::mmap(nullptr, sizeof(*numbers_), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    numbers_ = new (memory) std::array<std::atomic<int>, 8>();
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() { ::munmap(numbers_, sizeof(*numbers_)); }

  void set(int which) { (*numbers_)[which].store(1, std::memory_order_release); }
  void await(int which) const {
    while ((*numbers_)[which].load(std::memory_order_acquire) == 0)
      std::this_thread::sleep_for(milliseconds(1));
  }

 private:
  std::array<std::atomic<int>, 8>* numbers_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Shm, Processes, worlds_of(kShm, {3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, Processes, worlds_of(kTcp, {3, 4}), case_name);

TEST_P(Processes, GoOnWithoutTheOneThatDied) {
  for (int victim = 0; victim < world(); ++victim) {
    run([&](Communicator& comm) {
      const int rank = comm.rank();
      for (int i = 0; i < 5; ++i) sum_of(1, comm);
      EXPECT_EQ(comm.completed_calls(), 5U);
      lose(victim, comm);
      Survivors left = comm.survivors();
      EXPECT_EQ(left.lost, Ranks{victim});
      EXPECT_GE(left.completed_calls, 5U);
      EXPECT_LE(left.completed_calls, comm.completed_calls());
      EXPECT_EQ(left.comm.world(), world() - 1);
      EXPECT_EQ(left.comm.rank(), rank < victim ? rank : rank - 1);
      EXPECT_EQ(left.comm.transport(), comm.transport());
      EXPECT_EQ(left.comm.completed_calls(), 0U);
      EXPECT_EQ(sum_of(2, left.comm), 2 * (world() - 1));
      // A second call has nothing to go on from, and neither has one of a group that is well.
      expect_error(Code::invalid_argument, "has called it before", [&] { comm.survivors(); });
      expect_error(Code::invalid_argument, "no rank of this group is lost",
                   [&] { left.comm.survivors(); });
      EXPECT_EQ(sum_of(3, left.comm), 3 * (world() - 1));
    });
  }
}

TEST_P(Processes, LoseOneAfterAnother) {
  run([&](Communicator& first) {
    const int original = first.rank();
    Communicator comm = std::move(first);
    for (int next = 0; next < world() - 1; ++next) {
      EXPECT_EQ(comm.world(), world() - next);
      EXPECT_EQ(comm.rank(), original - next);
      lose(0, comm);
      Survivors left = comm.survivors();
      EXPECT_EQ(left.lost, Ranks{0});
      comm = std::move(left.comm);
    }
    EXPECT_EQ(sum_of(1, comm), 1);
  });
}

// All that live have the same group in the end, whichever answers they had on the way there.
TEST_P(Processes, GoOnThoughOneDiesWhileTheyAgree) {
  for (int delay = 0; delay < 6; ++delay) {
    run([&](Communicator& first) {
      const int original = first.rank();
      lose(world() - 1, first);
      if (original == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(700 * delay));
        die();
      }
      Communicator comm = std::move(first.survivors().comm);
      while (comm.world() > world() - 2) {
        work_until_a_loss(comm);
        Communicator next = std::move(comm.survivors().comm);
        comm = std::move(next);
      }
      EXPECT_EQ(comm.rank(), original - 1);
      EXPECT_EQ(sum_of(1, comm), world() - 2);
    });
  }
}

// Rank 0 has ended a call in which rank 2 has not begun.
TEST_P(Processes, CountTheCallsThatAllHaveEnded) {
  Numbers numbers;
  run([&](Communicator& comm) {
    barrier(comm);
    numbers.set(1 + comm.rank());
    if (comm.rank() == 0) {
      float value = 1;
      broadcast({&value, 1}, 0, comm);
      EXPECT_EQ(comm.completed_calls(), 2U);
      numbers.set(0);
    }
    // No rank is in the barrier any more when one dies.
    for (int number = 0; number <= world(); ++number) numbers.await(number);
    if (comm.rank() == 1) die();
    expect_error(Code::peer_lost, [&] {
      for (;;) comm.check_ranks();
    });
    EXPECT_EQ(comm.survivors().completed_calls, 1U);
  });
}

// Rank 2 lives, but does something else.
TEST_P(Processes, CountALateRankAsLost) {
  Numbers numbers;
  run(
      [&](Communicator& comm) {
        barrier(comm);
        set_timeout(comm, milliseconds(1200));
        if (comm.rank() == 2) {
          expect_error(Code::peer_lost, [&] {
            for (;;) barrier(comm);
          });
          for (int rank = 0; rank < world(); ++rank) {
            if (rank != 1 && rank != 2) numbers.await(rank);
          }
          expect_error(Code::timeout, 2, "the others go on without rank 2",
                       [&] { comm.survivors(); });
          return;
        }
        lose(1, comm);
        // From here on they have the deadline for each other too, so all begin together.
        numbers.set(4 + comm.rank());
        for (int rank = 0; rank < world(); ++rank) {
          if (rank != 1 && rank != 2) numbers.await(4 + rank);
        }
        Survivors left = comm.survivors();
        EXPECT_EQ(left.lost, (Ranks{1, 2}));
        EXPECT_EQ(sum_of(1, left.comm), world() - 2);
        numbers.set(comm.rank());
      },
      {});
}

// Ranks 0 and 4 live, but do something else. Rank 1 waits for rank 4 after all have waited for rank
// 0, and is not lost for that.
TEST(OverTcp, TakeNoRankThatWaitsForALateOneForLost) {
  Numbers numbers;
  run_over_tcp(6, [&](Communicator& comm) {
    set_timeout(comm, milliseconds(1500));
    if (comm.rank() == 0 || comm.rank() == 4) {
      work_until_a_loss(comm);
      for (const int rank : {1, 2, 3}) numbers.await(rank);
      return;
    }
    lose(5, comm);
    // All begin together: the deadline counts for each other as well.
    numbers.set(4 + comm.rank());
    for (const int rank : {1, 2, 3}) numbers.await(4 + rank);
    Survivors left = comm.survivors();
    EXPECT_EQ(left.lost, (Ranks{0, 4, 5}));
    EXPECT_EQ(sum_of(1, left.comm), 3);
    numbers.set(comm.rank());
  });
}

// A hook's exception ends the wait for the late rank 2, and the others wait for neither.
TEST_P(Processes, GoOnWithoutOneThatIsInterrupted) {
  Numbers numbers;
  std::atomic<bool> throws{false};
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(60);
  options.interrupted = [&] {
    if (throws) throw std::runtime_error("interrupted");
  };
  run(
      [&](Communicator& comm) {
        lose(0, comm);
        if (comm.rank() == 1) {
          throws = true;
          EXPECT_THROW(comm.survivors(), std::runtime_error);
          throws = false;
          numbers.await(2);
          return;
        }
        const auto begin = std::chrono::steady_clock::now();
        Survivors left = comm.survivors();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
        EXPECT_EQ(left.lost, (Ranks{0, 1}));
        EXPECT_EQ(sum_of(1, left.comm), world() - 2);
        if (comm.rank() == 2) numbers.set(2);
      },
      options);
}

// Sub-groups fail for themselves, and keep what they were told of hosts and links.
TEST(Survivors, OfASubGroupOverAnEmulatedLink) {
  Numbers numbers;
  run_in_processes(4, [&](Communicator& world) {
    Communicator linked = world.with_link(parse_link("10gbit,1us"));
    auto half = linked.split(world.rank() % 2, 0);
    numbers.set(world.rank());
    for (int rank = 0; rank < 4; ++rank) numbers.await(rank);
    if (world.rank() % 2 == 1) {
      EXPECT_EQ(sum_of(1, *half), 2);
      return;
    }
    lose(1, *half);
    const Survivors left = half->survivors();
    EXPECT_EQ(left.lost, Ranks{1});
    EXPECT_EQ(left.comm.world(), 1);
    EXPECT_EQ(left.comm.link(), linked.link());
  });
}

// Over TCP the other half may be alive, and go on by itself.
TEST(Survivors, OverTcpAreNotTheHalfWithoutTheLowestRank) {
  Numbers numbers;
  run_over_tcp(2, [&](Communicator& comm) {
    barrier(comm);
    if (comm.rank() == 0) return numbers.await(1);
    set_timeout(comm, milliseconds(400));
    expect_error(Code::timeout, [&] { sum_of(1, comm); });
    expect_error(Code::peer_lost, "rank 1 can't go on: rank 0 may be alive",
                 [&] { comm.survivors(); });
    expect_error(Code::invalid_argument, "the others may have gone on without it",
                 [&] { comm.survivors(); });
    numbers.set(1);
  });
}

TEST(Survivors, OverTcpAreTheHalfWithTheLowestRank) {
  Numbers numbers;
  run_over_tcp(2, [&](Communicator& comm) {
    barrier(comm);
    if (comm.rank() == 1) return numbers.await(1);
    set_timeout(comm, milliseconds(400));
    expect_error(Code::timeout, [&] { sum_of(1, comm); });
    const Survivors left = comm.survivors();
    EXPECT_EQ(left.lost, Ranks{1});
    EXPECT_EQ(left.comm.world(), 1);
    numbers.set(1);
  });
}

// A thread that has aborted the group leaves it.
void lose_threads(Communicator& first) {
  const int original = first.rank();
  const int world = first.world();
  if (original == 1) return first.abort("it has had enough");
  work_until_a_loss(first);
  Survivors left = first.survivors();
  EXPECT_EQ(left.lost, Ranks{1});
  EXPECT_EQ(sum_of(1, left.comm), world - 1);
  Communicator comm = std::move(left.comm);
  if (original == 0) return comm.abort("it too");
  work_until_a_loss(comm);
  Survivors rest = comm.survivors();
  EXPECT_EQ(rest.lost, Ranks{0});
  EXPECT_EQ(rest.comm.rank(), original - 2);
  EXPECT_EQ(sum_of(1, rest.comm), world - 2);
}

TEST(Survivors, AreThreads) { run_as_threads(4, lose_threads); }

TEST(Survivors, AreThreadsOverTcp) { run_threads_over_tcp(4, lose_threads); }

}  // namespace
}  // namespace plait
