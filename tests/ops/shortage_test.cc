// Ranks that have no memory for an operator, or no room for a thread: all hear of it at once.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/clock.h"
#include "conformance/ranks.h"
#include "ops/problem.h"

namespace plait {
namespace {

// From here on this process gets so many bytes more.
void leave_room_for(rlim_t bytes) {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t all = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit = {.rlim_cur = all, .rlim_max = all};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(Shortage, OfMemoryForAnOperatorIsToldToAll) {
  constexpr std::int64_t kRows = 8192;
  constexpr std::int64_t kColumns = 8192;  // whose partial sums are 256 MiB
  const std::string job = fresh_job();
  fork_ranks(2, [&](int rank) {
    const Place place = {.rank = rank, .world = 2, .job = job};
    Communicator comm = Communicator::connect({.transport = "shm", .place = place});
    const OpProblem problem(Operator::matmul_reduce_scatter, kRows, comm, kColumns, 8);
    barrier(comm);
    if (rank == 1) leave_room_for(rlim_t{128} << 20);
    expect_error(Code::system, "matmul_reduce_scatter: rank 1: Buffer: cannot get 268435456", [&] {
      prepare(problem.desc(), comm, {.plan = parse_plan("serial")}).run(problem.call());
    });
  });
}

TEST(Shortage, OfRoomForAThreadEndsAllRanksAtOnce) {
  fork_ranks(1, [](int) {
    leave_room_for(rlim_t{20} << 20);  // of a thread's stack, or a few
    const base::Nanoseconds begin = base::now();
    expect_error(Code::system, "run_in_threads: cannot start the thread of rank ",
                 [] { run_in_threads(32, [](Communicator& comm) { barrier(comm); }); });
    EXPECT_LT(base::now() - begin, 10 * base::kSecond);  // connecting ranks wait for 60 s
  });
}

}  // namespace
}  // namespace plait
