// Ranks over TCP ask each other what they are doing: which rank is blamed at a deadline, and how
// soon ranks learn that they are in different calls.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/core/wait.h"
#include "comm/milestones.h"
#include "comm/session/state.h"
#include "comm/tcp_case.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// A milestone: a rank is where it is meant to be when another one gives up.
constexpr int kReady = 1;

// A rank that is asked what it does must answer within it.
constexpr milliseconds kShort{1000};

TEST(TcpBlame, SaysThatTheLateOneMultiplies) {
  Milestones milestones;
  const auto body = [&](Communicator& comm) {
    barrier(comm);
    comm::Group& group = comm.state().group();
    const Tag tag = {.operation = Operation::matmul_all_reduce, .call = 9};
    group.announce(tag);
    if (comm.rank() == 1) {
      const comm::Awaited here = {.peer = 1, .tag = tag};
      const auto multiply = [&] {
        while (true) {
          group.examine(&here, [] { return true; });
          milestones.reach(kReady);
          std::this_thread::sleep_for(milliseconds(1));
        }
      };
      // Ends with what the other rank says when it gives up.
      expect_error(Code::timeout, multiply);
      return;
    }
    milestones.await(kReady);
    set_timeout(comm, kShort);
    const Error error = expect_error(Code::timeout, [&] {
      comm::wait_until(
          group, [] { return false; }, [] { return comm::kNever; },
          [&] { return comm::Awaited{.peer = 1, .tag = tag}; });
    });
    EXPECT_EQ(error.culprit(), 1) << error.what();
    EXPECT_TRUE(contains(error.what(), "; rank 1 is in matmul_all_reduce, multiplying; last sign"))
        << error.what();
  };
  run_over_tcp(2, body, {});
}

// Each waits for the other's data, so that no chunk says which call its sender is in.
TEST(TcpBlame, TellsRanksThatAreInDifferentCallsLongBeforeTheDeadline) {
  const auto body = [&](Communicator& comm) {
    barrier(comm);
    std::vector<float> data(8);
    const auto start = Clock::now();
    const Error error = expect_error(
        Code::mismatch, [&] { broadcast({data.data(), data.size()}, 1 - comm.rank(), comm); });
    EXPECT_LT(Clock::now() - start, seconds(20));
    EXPECT_TRUE(contains(error.what(), "disagree on root")) << error.what();
  };
  run_over_tcp(2, body, {.timeout = seconds(60)});
}

}  // namespace
}  // namespace plait
