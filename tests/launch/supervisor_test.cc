// Messages of runs on several hosts that the user does not cause.
#include "launch/supervisor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/random.h"

namespace plait::launch {
namespace {

Launch brief_launch() {
  Launch launch;
  launch.part = {.first = 0, .world = 1, .job = base::random_name(), .rendezvous = ""};
  launch.limit = 60 * base::kSecond;  // if nothing else ends it
  launch.silence = 100 * base::kMillisecond;
  return launch;
}

// In a process of its own, because a supervisor changes signals and ends all children.
[[noreturn]] void supervise(const Launch& launch) {
  Supervisor supervisor(launch);
  supervisor.start();
  _exit(supervisor.watch());
}

// Stops the supervisor, says nothing when it runs again, and ends.
void be_stopped_for_longer_than(base::Nanoseconds silence, pid_t supervisor) {
  usleep(300'000);
  kill(supervisor, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::nanoseconds(silence));
  kill(supervisor, SIGCONT);
  usleep(300'000);
}

enum class Caller { is_silent, ends, is_stopped_too };

[[noreturn]] void supervise_for_a_caller(Caller caller) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0 || dup2(ends[0], STDIN_FILENO) < 0) _exit(1);
  Launch launch = brief_launch();
  if (caller == Caller::is_stopped_too) {
    launch.silence = 3 * base::kSecond;
    const pid_t supervisor = getpid();
    if (fork() == 0) {
      be_stopped_for_longer_than(launch.silence, supervisor);
      _exit(0);
    }
  }
  if (caller != Caller::is_silent) close(ends[1]);
  launch.path = "/bin/sleep";
  launch.words = {"sleep", "100"};
  launch.bindings.resize(1);
  launch.has_caller = true;
  supervise(launch);
}

[[noreturn]] void supervise_an_agent_that_waits_for_beats() {
  Launch launch = brief_launch();
  launch.hosts = {{"node1", 1}};
  launch.agents = {{"/bin/sh", "-c", "read secret; head -c 3 | tr '\\0' x | grep -q xxx"}};
  supervise(launch);
}

TEST(SupervisorDeathTest, ACallerThatIsSilentIsGone) {
  EXPECT_EXIT(supervise_for_a_caller(Caller::is_silent), testing::ExitedWithCode(128 + SIGTERM),
              "the plait run that called this one has been silent for 100 ms; waiting up to 5 s "
              "for rank 0 to end");
}

TEST(SupervisorDeathTest, RanksEndWithTheirCaller) {
  EXPECT_EXIT(supervise_for_a_caller(Caller::ends), testing::ExitedWithCode(128 + SIGTERM),
              "the plait run that called this one has ended; waiting up to 5 s for rank 0 to end");
}

// A batch system stops all processes of a job, on all hosts.
TEST(SupervisorDeathTest, ACallerThatWasStoppedWithItsRunIsNotGone) {
  EXPECT_EXIT(supervise_for_a_caller(Caller::is_stopped_too),
              testing::ExitedWithCode(128 + SIGTERM),
              "the plait run that called this one has ended");
}

TEST(SupervisorDeathTest, ACallerSendsBeats) {
  EXPECT_EXIT(supervise_an_agent_that_waits_for_beats(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plait::launch
