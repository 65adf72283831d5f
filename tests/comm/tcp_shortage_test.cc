// Ranks over TCP that run out of descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>
#include <vector>

#include "comm/milestones.h"
#include "comm/tcp_case.h"
#include "conformance/descriptors.h"
#include "plait/collectives.h"

namespace plait {
namespace {

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
    EXPECT_EQ(sum_of_ones(comm), 3);
    done.reach(0);
  });
}

// Open descriptors stay open. The rank goes on to look for callers, which takes one descriptor even
// where there are none.
void allow_one_more_descriptor() {
  int first = 0;
  while (::fcntl(first, F_GETFD) >= 0) ++first;
  const rlimit one = {.rlim_cur = static_cast<rlim_t>(first) + 1, .rlim_max = kMostDescriptors};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
}

// A rank that has all its connections needs two descriptors more, to watch them. The others, which
// may wait for its first frame by then, get its reason.
void expect_reason_of_rank_2(int rank, CommunicatorOptions options) {
  if (rank == 2) {
    options.interrupted = [] {
      if (established_connections() == 2) allow_one_more_descriptor();
    };
  }
  const auto start = Clock::now();
  const Error error = expect_error(Code::system, [&] { Communicator::connect(options); });
  EXPECT_LT(Clock::now() - start, seconds(20));  // the deadline is a minute
  EXPECT_TRUE(contains(error.what(), "cannot watch the connections of this rank")) << error.what();
  if (rank != 2) {
    EXPECT_EQ(error.culprit(), 2) << error.what();
  }
}

TEST_F(TcpShortage, ARankThatCannotWatchItsConnectionsTellsTheOthersWhy) {
  fork_ranks(3, [&](int rank) { expect_reason_of_rank_2(rank, options_of(rank, 3, job_)); });
}

TEST_F(TcpShortage, ARankThatCannotWatchItsConnectionsTellsTheOthersWhyAfterAStore) {
  const Store store(3);
  fork_ranks(3, [&](int rank) {
    CommunicatorOptions options = options_of(rank, 3, job_);
    options.all_gather = store.all_gather(rank);
    expect_reason_of_rank_2(rank, options);
  });
}

}  // namespace
}  // namespace plait
