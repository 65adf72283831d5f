// Partial sums of uneven shards, with and without hosts whose ranks act together. The ranks are
// threads here: which host they are on is only said.
#include "comm/flow/reduce_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/vector_flow.h"
#include "conformance/ranks.h"
#include "tensor/in_pairs.h"

namespace plait::comm {
namespace {

using conformance::run_as_threads;

// Sums of thirds are rounded: the order shows.
std::vector<float> part_of(int rank, std::size_t count) {
  std::vector<float> part(count);
  for (std::size_t i = 0; i < count; ++i)
    part[i] = static_cast<float>((i + static_cast<std::size_t>(rank)) % 11 + 1) / 3;
  return part;
}

void expect_sums(Communicator& comm, int per_host, int shift) {
  const Layout layout = uneven_layout(comm.world(), shift);
  const std::size_t count = elements_of(layout);
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::vector<float> mine = part_of(comm.rank(), count);
  std::vector<float> out(layout.counts[rank]);
  const Shards shards = Shards::of(layout, Dtype::f32, comm.state().room());
  const VectorPartials partials(shards, comm.rank(), {mine.data(), count},
                                {out.data(), out.size()});
  const Hosts hosts(comm.rank(), comm.world(), per_host);
  ReduceFlow flow(comm.state().lanes(), hosts, partials, {.wire = Dtype::f32});
  for (int call = 0; call < 2; ++call) {
    begin_call(comm);
    flow.begin();
    flow.made(ReduceFlow::kAll);
    finish(comm, flow);
    EXPECT_EQ(flow.awaited().peer, Error::kNobody);
    std::vector<std::vector<float>> parts;
    for (int other = 0; other < comm.world(); ++other) parts.push_back(part_of(other, count));
    const std::vector<float> sum = tensor::added_in_pairs(std::move(parts));
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], sum[layout.offsets[rank] + i]) << i << " on rank " << rank;
  }
}

TEST(ReduceFlow, AddsUpUnevenShardsInEveryPlacement) {
  for (const auto& [world, per_host] : {std::pair{1, 1}, {3, 1}, {4, 1}, {4, 2}, {6, 2}, {8, 4}}) {
    for (const int shift : {0, 1, 2}) {
      run_as_threads(world, [&](Communicator& comm) { expect_sums(comm, per_host, shift); }, {});
    }
  }
}

}  // namespace
}  // namespace plait::comm
