// Uneven shards on their way to all ranks, with and without hosts whose ranks act together. The
// ranks are threads here: which host they are on is only said.
#include "comm/flow/gather_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/vector_flow.h"

namespace plait::comm {
namespace {

void expect_all(Communicator& comm, VectorLanes& lanes, const Hosts& hosts, const Layout& layout) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const Shards shards = Shards::of(layout, Dtype::f32, lanes.capacity());
  for (const Way way : {Way::out, Way::back}) {
    const std::vector<float> mine(layout.counts[rank], static_cast<float>(rank + 1));
    std::vector<float> all(elements_of(layout), -1.0F);
    const VectorShares shares(shards, comm.rank(), {mine.data(), mine.size()},
                              {all.data(), all.size()});
    GatherFlow flow(lanes.lanes(), hosts, shares, way);
    lanes.begin_call();
    flow.begin();
    // One chunk of this rank's own at first.
    flow.ready(1);
    for (int again = 0; again < 10; ++again) flow.step();
    EXPECT_LE(flow.sent(), 1U);
    flow.ready(shares.chunks(comm.rank()));
    lanes.finish(flow);
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
  in_every_placement({{2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 4}}, expect_all);
}

}  // namespace
}  // namespace plait::comm
