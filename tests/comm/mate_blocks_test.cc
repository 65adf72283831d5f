// The order of blocks between two ranks of a host, where shards have different numbers of chunks.
#include "comm/flow/mate_blocks.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "comm/collectives/vector.h"

namespace plait::comm {
namespace {

using Order = std::vector<std::pair<std::uint32_t, int>>;  // chunk, owner

Order order_of(MateBlocks blocks) {
  Order order;
  for (blocks.begin(); !blocks.done(); blocks.advance()) {
    EXPECT_TRUE(blocks.is_at(blocks.chunk(), blocks.owner()));
    order.emplace_back(blocks.chunk(), blocks.owner());
  }
  return order;
}

// Hosts {0 1} {2 3} {4 5}, of which this is rank 3. Its shard has one chunk of 4 KiB, that of rank
// 1 three, and that of rank 5 two.
TEST(MateBlocks, AreThoseOfAllHostsInTurn) {
  const Layout layout = {.offsets = {0, 0, 3072, 3072, 4096, 4096},
                         .counts = {0, 3072, 0, 1024, 0, 2048}};
  const Shards shards = Shards::of(layout, Dtype::f32, {.chunk_bytes = 4096});
  std::vector<float> all(6144);
  const VectorShares blocks(shards, 3, {all.data() + 3072, 1024}, {all.data(), all.size()});
  const Hosts hosts(3, 6, 2);
  EXPECT_EQ(order_of({hosts, blocks, 3, MateBlocks::First::this_host}),
            (Order{{0, 3}, {0, 5}, {0, 1}, {1, 5}, {1, 1}, {2, 1}}));
  EXPECT_EQ(order_of({hosts, blocks, 3, MateBlocks::First::next_host}),
            (Order{{0, 5}, {0, 1}, {0, 3}, {1, 5}, {1, 1}, {2, 1}}));
  // An empty shard has one chunk.
  EXPECT_EQ(order_of({hosts, blocks, 2, MateBlocks::First::this_host}),
            (Order{{0, 2}, {0, 4}, {0, 0}}));
}

}  // namespace
}  // namespace plait::comm
