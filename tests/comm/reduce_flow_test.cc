// Partial sums of uneven shards, with and without hosts whose ranks act together. The ranks are
// threads here, and their hosts exist only in their places.
#include "comm/flow/reduce_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/vector_flow.h"

namespace plait::comm {
namespace {

void expect_sums(Communicator& comm, VectorLanes& lanes, const Hosts& hosts, const Layout& layout) {
  const std::size_t count = elements_of(layout);
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::vector<float> mine = part_of(comm.rank(), count);
  std::vector<float> out(layout.counts[rank]);
  const Shards shards = Shards::of(layout, Dtype::f32, lanes.capacity());
  const VectorPartials partials(shards, comm.rank(), {mine.data(), count},
                                {out.data(), out.size()});
  ReduceFlow flow(lanes.lanes(), hosts, partials, {.wire = Dtype::f32});
  const std::vector<float> sum = sum_of_parts(comm.world(), count);
  for (int call = 0; call < 2; ++call) {
    lanes.begin_call();
    flow.begin();
    flow.ready(ReduceFlow::kAll);
    lanes.finish(flow);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], sum[layout.offsets[rank] + i]) << i << " on rank " << rank;
  }
}

TEST(ReduceFlow, AddsUpUnevenShardsInEveryPlacement) {
  in_every_placement({{1, 1}, {3, 1}, {4, 1}, {4, 2}, {6, 2}, {8, 4}}, expect_sums);
}

}  // namespace
}  // namespace plait::comm
