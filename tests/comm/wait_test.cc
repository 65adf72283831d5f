// Waiting, as far as the conformance suites do not show it.
#include "comm/core/wait.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::comm {
namespace {

// The awaited chunk may have come between two polls. Rank 0 is not to blame then, though it has
// left.
TEST(Wait, BlamesNobodyWhereNobodyIsAwaited) {
  run_in_threads(2, [](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    if (comm.rank() == 0) part.reset();
    barrier(comm);
    if (comm.rank() == 0) return;
    const Nanoseconds end = base::now() + 60 * base::kMillisecond;
    wait_until(
        part->state().group(), [&] { return base::now() >= end; }, [] { return kNever; },
        [] { return nothing_awaited({}); });
  });
}

// Nor does it wait for ever: that is a mistake of its own.
TEST(Wait, EndsWhereNobodyIsAwaited) {
  constexpr std::chrono::milliseconds kShort{100};
  const auto body = [&](Communicator& comm) {
    set_timeout(comm, kShort);
    if (comm.rank() == 1) return;
    expect_error(Code::timeout, 0, "matmul_all_reduce: rank 0 waits for no chunk", [&] {
      wait_until(
          comm.state().group(), [] { return false; }, [] { return kNever; },
          [] { return nothing_awaited({.operation = Operation::matmul_all_reduce}); });
    });
  };
  run_as_threads(2, body);
}

// Whatever a rank waits for in an operator, a failure says in which, and at which chunk.
TEST(Awaited, IsDescribedByOperatorAndChunk) {
  const Tag tag = {.operation = Operation::matmul_all_reduce, .chunk = 5};
  EXPECT_EQ(describe({.peer = 1, .tag = tag}, 0),
            "matmul_all_reduce: rank 0 waits for chunk 5 from rank 1");
  EXPECT_EQ(describe({.peer = 1, .tag = tag, .room = true}, 0),
            "matmul_all_reduce: rank 0 waits for rank 1 to make room for chunk 5");
  EXPECT_EQ(describe({.peer = 0, .tag = tag}, 0),
            "matmul_all_reduce: rank 0 multiplies, and is at chunk 5");
  EXPECT_EQ(describe(nothing_awaited(tag), 0),
            "matmul_all_reduce: rank 0 waits for no chunk any more");
}

}  // namespace
}  // namespace plait::comm
