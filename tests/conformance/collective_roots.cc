// Broadcasts in which ranks name different roots.
#include <chrono>
#include <thread>
#include <vector>

#include "conformance/collectives.h"
#include "plait/collectives.h"

namespace plait::conformance {

// A program may link all suites and run only some.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RootsConformance);

namespace {

// Makes a single call, after which all ranks leave. Returns whether it ended with a mismatch.
bool notices(Communicator& whole, int root) {
  auto part = whole.split(0, whole.rank());
  std::vector<float> data(16, 1.0F);
  try {
    broadcast({data.data(), data.size()}, root, *part);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::mismatch) << error.what();
    EXPECT_TRUE(contains(error.what(), "broadcast")) << error.what();
    EXPECT_TRUE(contains(error.what(), "on root: ")) << error.what();
    return true;
  }
}

}  // namespace

// Roots receive nothing, so one may be done before another has started. They compare when they have
// sent everything, at the same time or one after the other.
TEST_P(RootsConformance, SomebodyNoticesTwoRoots) {
  if (world() == 1) return;
  run([&](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      // Rank 0 is a root; the others follow rank 1, or each of them is a root too.
      const bool all_are_roots = round % 2 == 1;
      const int root = comm.rank() == 0 || all_are_roots ? comm.rank() : 1;
      barrier(comm);
      const bool in_turn = round % 4 < 2 || !GetParam().maker.sees_calls;
      if (in_turn) std::this_thread::sleep_for(std::chrono::milliseconds(3 * comm.rank()));
      float noticed = notices(comm, root) ? 1 : 0;
      all_reduce({&noticed, 1}, comm);
      EXPECT_GE(noticed, 1) << "round " << round;
    }
  });
}

}  // namespace plait::conformance
