// Ranks over TCP that run out of descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>
#include <vector>

#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using conformance::fork_ranks;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

using TcpShortage = TcpCase;

// Connections on which nothing is said take the descriptors of ranks that may open only a few.
TEST_F(TcpShortage, SilentCallersTakeNoDescriptorThatARankNeeds) {
  Milestones done;
  const Helper silent([&] {
    std::vector<int> calls;
    const auto end = Clock::now() + seconds(60);
    while (Clock::now() < end && done.reached(0) < 3) {
      if (calls.size() < 60) {
        const int one = call(port_.number);
        if (one >= 0) calls.push_back(one);
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  fork_ranks(3, [&](int rank) {
    const rlimit few = {.rlim_cur = 40, .rlim_max = 40};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::this_thread::sleep_for(milliseconds(1500 * rank));
    Communicator comm = Communicator::connect(options_of(rank, 3, job_));
    float sum = 1;
    all_reduce({&sum, 1}, comm);
    EXPECT_EQ(sum, 3);
    done.reach(0);
  });
}

}  // namespace
}  // namespace plait
