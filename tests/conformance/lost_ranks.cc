#include "conformance/lost_ranks.h"

#include <atomic>
#include <chrono>

#include "conformance/await.h"
#include "plait/collectives.h"

namespace plait {

void expect_that_a_late_rank_multiplies(const Multiply& multiply) {
  std::atomic<bool> multiplies{false};
  std::atomic<bool> has_ended{false};
  run_as_threads(2, [&](Communicator& comm) {
    barrier(comm);
    if (comm.rank() == 0) {
      if (!await("rank 1 multiplies", [&] { return multiplies.load(); })) return;
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
      static_cast<void>(await("rank 0 reaches its deadline", [&] { return has_ended.load(); }));
    };
    // Other threads may do most of a product.
    static_cast<void>(await("a product calls the hook twice", [&] {
      multiply(comm, stop);
      return calls >= 2;
    }));
  });
}

}  // namespace plait
