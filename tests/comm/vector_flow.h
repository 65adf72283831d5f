// A flow of a vector's shards through lanes of their own, for tests of flows by themselves.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/collectives/vector.h"
#include "comm/core/wait.h"
#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "tensor/in_pairs.h"

namespace plait::comm {

// Shards of many, few and no chunks: rank r's has 20000·((r + shift) mod 3) elements and r more.
inline Layout uneven_layout(int world, int shift) {
  Layout layout;
  std::size_t offset = 0;
  for (int rank = 0; rank < world; ++rank) {
    const std::size_t count = std::size_t{20000} * static_cast<std::size_t>((rank + shift) % 3) +
                              static_cast<std::size_t>(rank);
    layout.offsets.push_back(offset);
    layout.counts.push_back(count);
    offset += count;
  }
  return layout;
}

inline std::size_t elements_of(const Layout& layout) {
  return layout.offsets.back() + layout.counts.back();
}

// Sums of thirds are rounded: the order shows.
inline std::vector<float> part_of(int rank, std::size_t count) {
  std::vector<float> part(count);
  for (std::size_t i = 0; i < count; ++i)
    part[i] = static_cast<float>((i + static_cast<std::size_t>(rank)) % 11 + 1) / 3;
  return part;
}

inline std::vector<float> sum_of_parts(int world, std::size_t count) {
  std::vector<std::vector<float>> parts;
  parts.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) parts.push_back(part_of(rank, count));
  return tensor::added_in_pairs(std::move(parts));
}

// Lanes of `per_lane` slots to each peer, through which small chunks go.
class VectorLanes {
 public:
  VectorLanes(Communicator& comm, std::uint32_t per_lane)
      : state_(comm.state()),
        capacity_{.chunk_bytes = kLeastChunkBytes, .per_lane = per_lane},
        mailbox_(comm.make_mailbox(capacity_.mailbox())),
        lanes_(state_.group(), {.ways = 2, .per_lane = per_lane}) {
    lanes_.use(mailbox_->state());
  }

  const LaneCapacity& capacity() const { return capacity_; }
  Lanes& lanes() { return lanes_; }
  void begin_call() { lanes_.begin(state_.begin_call({.operation = Operation::all_gather})); }

  template <class Flow>
  void finish(Flow& flow) {
    Mailbox::State& mailbox = mailbox_->state();
    wait_until(
        state_.group(),
        [&] {
          flow.step();
          mailbox.help();
          return flow.done();
        },
        [&] { return mailbox.take_due(); }, [&] { return flow.awaited(); });
    EXPECT_EQ(flow.awaited().peer, Error::kNoRank);
  }

 private:
  Communicator::State& state_;
  LaneCapacity capacity_;
  std::unique_ptr<Mailbox> mailbox_;
  Lanes lanes_;
};

// Runs a test of each placement: ranks, ranks of a host, which shards are empty, and slots.
template <class Expect>
void in_every_placement(const std::vector<std::pair<int, int>>& worlds, const Expect& expect) {
  for (const auto& [world, per_host] : worlds) {
    for (const int shift : {0, 1, 2}) {
      for (const std::uint32_t per_lane : {1U, 4U}) {
        run_as_threads(world, [&](Communicator& comm) {
          VectorLanes lanes(comm, per_lane);
          expect(comm, lanes, Hosts(comm.rank(), world, per_host), uneven_layout(world, shift));
        });
      }
    }
  }
}

}  // namespace plait::comm
