// Uneven shards on their way to all ranks, with and without hosts whose ranks act together. The
// ranks are threads here: which host they are on is only said.
#include "comm/flow/gather_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/vector_flow.h"
#include "conformance/ranks.h"

namespace plait::comm {
namespace {

using conformance::run_as_threads;

void expect_all(Communicator& comm, int per_host, int shift) {
  const Layout layout = uneven_layout(comm.world(), shift);
  const auto rank = static_cast<std::size_t>(comm.rank());
  const Shards shards = Shards::of(layout, Dtype::f32, comm.state().room());
  const Hosts hosts(comm.rank(), comm.world(), per_host);
  for (const Way way : {Way::out, Way::back}) {
    const std::vector<float> mine(layout.counts[rank], static_cast<float>(rank + 1));
    std::vector<float> all(elements_of(layout), -1.0F);
    const VectorShares shares(shards, comm.rank(), {mine.data(), mine.size()},
                              {all.data(), all.size()});
    GatherFlow flow(comm.state().lanes(), hosts, shares, way);
    begin_call(comm);
    flow.begin();
    // One chunk of this rank's own at first.
    flow.made(1);
    for (int again = 0; again < 10; ++again) flow.step();
    EXPECT_LE(flow.sent(), 1U);
    flow.made(shares.chunks(comm.rank()));
    finish(comm, flow);
    EXPECT_EQ(flow.awaited().peer, Error::kNobody);
    for (int owner = 0; owner < comm.world(); ++owner) {
      const auto index = static_cast<std::size_t>(owner);
      // Its own shard is not the flow's to write.
      const float want = owner == comm.rank() ? -1.0F : static_cast<float>(owner + 1);
      if (owner != comm.rank()) {
        EXPECT_EQ(flow.received(owner), shares.chunks(owner));
      }
      for (std::size_t i = 0; i < layout.counts[index]; ++i)
        ASSERT_EQ(all[layout.offsets[index] + i], want) << i << " of rank " << owner;
    }
  }
}

TEST(GatherFlow, BringsUnevenShardsInEveryPlacement) {
  for (const auto& [world, per_host] : {std::pair{2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 4}}) {
    for (const int shift : {0, 1, 2}) {
      run_as_threads(world, [&](Communicator& comm) { expect_all(comm, per_host, shift); }, {});
    }
  }
}

}  // namespace
}  // namespace plait::comm
