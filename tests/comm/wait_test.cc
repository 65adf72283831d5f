// Waiting, as far as the conformance suites do not show it.
#include "comm/wait.h"

#include <gtest/gtest.h>

#include <optional>

#include "comm/collectives/streams.h"
#include "plait/collectives.h"

namespace plait::comm {
namespace {

TEST(FirstAwaited, IsNobodyWhereAllHasCome) {
  EXPECT_EQ(first_awaited({}, Receivers{}, Senders{}).peer, Error::kNobody);
}

// What a wait asks for may have come between two of its looks. Rank 0 is not to blame then, though
// it has left.
TEST(Wait, BlamesNobodyWhereNobodyIsAwaited) {
  run_in_threads(2, [](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    if (comm.rank() == 0) part.reset();
    barrier(comm);
    if (comm.rank() == 0) return;
    const Nanoseconds end = base::now() + 60 * base::kMillisecond;
    wait_until(
        part->state().group(), [&] { return base::now() >= end; }, [] { return kNever; },
        [] { return nobody({}); });
  });
}

}  // namespace
}  // namespace plait::comm
