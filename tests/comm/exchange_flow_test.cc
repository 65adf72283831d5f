// Blocks for one receiver each, of which every pair of ranks has as many as it likes.
#include "comm/flow/exchange_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/vector_flow.h"

namespace plait::comm {
namespace {

// How many chunks of one row go from a rank to another; some pairs have none.
std::uint32_t chunks_between(int from, int to, std::size_t shift) {
  return static_cast<std::uint32_t>((static_cast<std::size_t>(3 * from + 5 * to) + shift) % 7);
}

float value_of(int from, int to, std::uint32_t chunk) {
  return static_cast<float>(10000 * from + 100 * to) + static_cast<float>(chunk);
}

class Letters final : public Parcels {
 public:
  static constexpr std::int64_t kColumns = 30;

  Letters(int rank, int world, std::size_t shift) : rank_(rank), shift_(shift) {
    for (int peer = 0; peer < world; ++peer) {
      outgoing_.emplace_back();
      incoming_.emplace_back(chunks_from(peer) * kColumns, -1.0F);
      for (std::uint32_t chunk = 0; chunk < chunks_to(peer); ++chunk)
        outgoing_.back().insert(outgoing_.back().end(), kColumns, value_of(rank, peer, chunk));
    }
  }

  std::uint32_t chunks_to(int peer) const override { return chunks_between(rank_, peer, shift_); }
  std::uint32_t chunks_from(int peer) const override { return chunks_between(peer, rank_, shift_); }
  ConstTensorView outgoing(std::uint32_t chunk, int peer) const override {
    return ConstTensorView::of(outgoing_[static_cast<std::size_t>(peer)].data() + chunk * kColumns,
                               1, kColumns);
  }
  TensorView incoming(std::uint32_t chunk, int peer) const override {
    return TensorView::of(incoming_[static_cast<std::size_t>(peer)].data() + chunk * kColumns, 1,
                          kColumns);
  }

  void expect_all_have_come() const {
    for (int peer = 0; peer < static_cast<int>(incoming_.size()); ++peer) {
      if (peer == rank_) continue;
      for (std::uint32_t chunk = 0; chunk < chunks_from(peer); ++chunk) {
        for (std::int64_t column = 0; column < kColumns; ++column) {
          ASSERT_EQ(incoming_[static_cast<std::size_t>(peer)][chunk * kColumns + column],
                    value_of(peer, rank_, chunk))
              << chunk << " of rank " << peer;
        }
      }
    }
  }

 private:
  int rank_;
  std::size_t shift_;
  std::vector<std::vector<float>> outgoing_;
  mutable std::vector<std::vector<float>> incoming_;
};

TEST(ExchangeFlow, BringsEachPairItsOwnNumberOfBlocks) {
  in_every_placement({{2, 1}, {3, 1}, {6, 1}}, [](Communicator& comm, VectorLanes& lanes,
                                                  const Hosts& /*hosts*/, const Layout& layout) {
    for (int call = 0; call < 2; ++call) {
      const Letters letters(comm.rank(), comm.world(), layout.counts[0] / 20000);
      ExchangeFlow flow(lanes.lanes(), letters);
      lanes.begin_call();
      lanes.finish(flow);
      letters.expect_all_have_come();
    }
  });
}

}  // namespace
}  // namespace plait::comm
