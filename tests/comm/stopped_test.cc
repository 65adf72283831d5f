// A job that is stopped as a whole, as by Ctrl-Z, goes on: no rank is late because of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/session/gather.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using std::chrono::seconds;

constexpr seconds kDeadline{4};
constexpr unsigned kStopped = 5;  // seconds

// Stops these processes, this one's parent among them, while the first waits for the second.
void stop_and_continue(const std::vector<pid_t>& pids) {
  ::usleep(300'000);
  for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
  ::sleep(kStopped);
  for (const pid_t pid : pids) ::kill(pid, SIGCONT);
  ::_exit(0);
}

void be_stopped_before(Communicator& comm, const std::function<void(Communicator&)>& call) {
  const std::vector<pid_t> pids = comm::gather_values(::getpid(), comm);
  set_timeout(comm, kDeadline);
  if (comm.rank() == 1) {
    const pid_t helper = ::fork();
    if (helper == 0) stop_and_continue(pids);
    // Computes for some time before it was stopped, and after.
    for (int turn = 0; turn < 60; ++turn) ::usleep(10'000);
    ::waitpid(helper, nullptr, 0);
  }
  EXPECT_NO_THROW(call(comm));
}

class StoppedJob : public testing::TestWithParam<RankMaker> {};

INSTANTIATE_TEST_SUITE_P(Reliability, StoppedJob,
                         testing::Values(RankMaker{.name = "shm", .run = run_in_processes},
                                         RankMaker{.name = "tcp", .run = run_over_tcp}),
                         [](const auto& one) { return one.param.name; });

TEST_P(StoppedJob, GoesOnInACall) {
  GetParam().run(2, [](Communicator& comm) {
    be_stopped_before(comm, [](Communicator& all) { barrier(all); });
  });
}

TEST_P(StoppedJob, GoesOnInSetUp) {
  const auto split = [](Communicator& all) { all.split(0, 0); };
  GetParam().run(2, [&](Communicator& comm) { be_stopped_before(comm, split); });
}

}  // namespace
}  // namespace plait
