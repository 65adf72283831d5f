// Rows through small chunks and few slots. What callers see is tested in conformance/rows.cc.
#include "comm/flow/row_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "comm/vector_flow.h"

namespace plait::comm {
namespace {

// Some pairs have none.
std::int64_t rows_between(int from, int to, int shift) { return (3 * from + 5 * to + shift) % 7; }

float value_of(int from, int to, std::int64_t row, std::int64_t column) {
  return static_cast<float>(100 * from + 10 * to + row) + static_cast<float>(column) / 8192;
}

class Letters final : public MatrixParcels {
 public:
  Letters(int rank, int world, int shift, std::int64_t cols)
      : rank_(rank),
        shift_(shift),
        cols_(cols),
        to_(static_cast<std::size_t>(world)),
        from_(to_.size()),
        counts_to_(to_.size()),
        counts_from_(to_.size(), -1) {
    for (int peer = 0; peer < world; ++peer) {
      const std::int64_t rows = rows_between(rank, peer, shift);
      const auto first = static_cast<std::int64_t>(out_.size()) / std::max<std::int64_t>(cols, 1);
      to_[index(peer)].add(first, rows);
      counts_to_[index(peer)] = rows;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < cols; ++column)
          out_.push_back(value_of(rank, peer, row, column));
      }
    }
  }

  ConstTensorView outgoing() const override { return view_of(out_); }
  const RowBlock& block_to(int peer) const override { return to_[index(peer)]; }
  std::span<const std::int64_t> counts_to(int peer) const override {
    return std::span(counts_to_).subspan(index(peer), 1);
  }
  std::int64_t learn(int peer, std::span<const std::int64_t> counts) override {
    EXPECT_EQ(counts_from_[index(peer)], -1) << "twice";
    counts_from_[index(peer)] = counts[0];
    return counts[0];
  }
  // The last rank's rows come first, and those of each in two runs.
  void make_places() override {
    EXPECT_TRUE(in_.empty()) << "twice";
    std::int64_t rows = 0;
    for (std::size_t peer = from_.size(); peer-- > 0;) {
      if (static_cast<int>(peer) == rank_) continue;
      const std::int64_t count = counts_from_[peer];
      ASSERT_GE(count, 0) << "places are made before all is known";
      from_[peer].add(rows + count / 2, count - count / 2);
      from_[peer].add(rows, count / 2);
      rows += count;
    }
    in_.assign(static_cast<std::size_t>(rows * cols_), -1.0F);
  }
  TensorView incoming() const override {
    return TensorView::of(in_.data(), static_cast<std::int64_t>(in_.size()) / cols_, cols_);
  }
  const RowBlock& block_from(int peer) const override { return from_[index(peer)]; }

  void expect_all_have_come() const {
    for (int peer = 0; peer < static_cast<int>(from_.size()); ++peer) {
      if (peer == rank_) continue;
      const RowBlock& block = from_[index(peer)];
      ASSERT_EQ(block.rows(), rows_between(peer, rank_, shift_));
      block.for_each_run({0, block.rows()}, [&](RowRange rows, std::int64_t at) {
        for (std::int64_t row = 0; row < rows.count(); ++row) {
          for (std::int64_t column = 0; column < cols_; ++column) {
            ASSERT_EQ(in_[static_cast<std::size_t>((rows.begin + row) * cols_ + column)],
                      value_of(peer, rank_, at + row, column))
                << row << " of rank " << peer;
          }
        }
      });
    }
  }

 private:
  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  ConstTensorView view_of(const std::vector<float>& values) const {
    return ConstTensorView::of(values.data(), static_cast<std::int64_t>(values.size()) / cols_,
                               cols_);
  }

  int rank_;
  int shift_;
  std::int64_t cols_;
  std::vector<float> out_;
  mutable std::vector<float> in_;
  std::vector<RowBlock> to_, from_;
  std::vector<std::int64_t> counts_to_, counts_from_;
};

TEST(RowFlow, BringsEachPairItsRowsThroughSmallChunks) {
  in_every_placement(
      {{1, 1}, {2, 1}, {3, 1}, {5, 1}},
      [](Communicator& comm, VectorLanes& lanes, const Hosts& /*hosts*/, const Layout& layout) {
        const auto shift = static_cast<int>(layout.counts[0] / 20000);
        // Many rows a chunk, one, and pieces of one.
        for (const std::int64_t cols : {7, 1024, 2500}) {
          Letters letters(comm.rank(), comm.world(), shift, cols);
          RowFlow flow(lanes.lanes(), letters,
                       RowCut(letters.outgoing(), 1, lanes.capacity().chunk_bytes));
          lanes.begin_call();
          flow.begin();
          lanes.finish(flow);
          letters.expect_all_have_come();
        }
      });
}

}  // namespace
}  // namespace plait::comm
