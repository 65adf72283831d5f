#include "conformance/lost_ranks.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "plait/collectives.h"

namespace plait::conformance {

void expect_that_a_late_rank_multiplies(const Multiply& multiply) {
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  std::atomic<bool> multiplies{false};
  std::atomic<bool> has_ended{false};
  run_as_threads(2, [&](Communicator& comm) {
    barrier(comm);
    if (comm.rank() == 0) {
      while (!multiplies) rest();
      set_timeout(comm, std::chrono::milliseconds(300));
      const Error error = expect_error(Code::timeout, [&] { barrier(comm); });
      has_ended = true;
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(
          contains(error.what(), "rank 1 multiplies; its last call of this group is barrier; "))
          << error.what();
      return;
    }
    int calls = 0;
    const std::function<void()> stop = [&] {
      if (++calls != 2) return;
      multiplies = true;
      while (!has_ended) rest();
    };
    // Other threads may do most of a product.
    while (calls < 2) multiply(comm, stop);
  });
}

}  // namespace plait::conformance
