// Partial sums of uneven shards that come back as answers, in the slots that they came in.
#include "comm/flow/answer_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/vector_flow.h"

namespace plait::comm {
namespace {

void expect_sums_everywhere(Communicator& comm, VectorLanes& lanes, const Hosts& /*hosts*/,
                            const Layout& layout) {
  ASSERT_TRUE(comm.world() == 1 || lanes.lanes().takes_answers());
  const std::size_t count = elements_of(layout);
  const std::vector<float> mine = part_of(comm.rank(), count);
  const Shards shards = Shards::of(layout, Dtype::f32, lanes.capacity());
  for (int call = 0; call < 2; ++call) {
    std::vector<float> all(count, -1.0F);
    const auto offset = layout.offsets[static_cast<std::size_t>(comm.rank())];
    const auto own = layout.counts[static_cast<std::size_t>(comm.rank())];
    const VectorPartials partials(shards, comm.rank(), {mine.data(), count},
                                  {all.data() + offset, own});
    const VectorShares shares(shards, comm.rank(), {all.data() + offset, own}, {all.data(), count});
    AnswerFlow flow(lanes.lanes(), partials, shares);
    lanes.begin_call();
    lanes.finish(flow);
    ASSERT_EQ(all, sum_of_parts(comm.world(), count));
  }
}

TEST(AnswerFlow, AddsUpUnevenShardsOnAllRanks) {
  in_every_placement({{2, 1}, {3, 1}, {5, 1}}, expect_sums_everywhere);
}

}  // namespace
}  // namespace plait::comm
