// The rows of one call on this rank: those that it multiplies, and how far it has come with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/flow/counted_rows.h"
#include "comm/flow/row_flow.h"
#include "plait/buffer.h"
#include "plait/tensor_view.h"

namespace plait::experts {

// A matrix as bytes.
template <class View>
View as_bytes(const View& view) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  return {.data = view.data,
          .dtype = Dtype::s8,
          .rows = view.rows,
          .cols = view.cols * element,
          .row_stride = view.row_stride * element};
}

// Rows for experts, one group after another, and their results.
class RowStore {
 public:
  // Bytes of a row and of its result.
  RowStore(std::int64_t row_bytes, std::int64_t result_bytes)
      : row_bytes_(row_bytes), result_bytes_(result_bytes) {}

  void make(std::int64_t rows);

  std::int64_t rows() const { return rows_; }
  TensorView bytes() const;    // rows
  TensorView results() const;  // as bytes

  // A part of each row, or of each result, from this byte on.
  TensorView part(Dtype dtype, std::int64_t cols, std::int64_t offset) const;
  TensorView result_part(Dtype dtype, std::int64_t cols, std::int64_t offset = 0) const;

  std::size_t held_bytes() const { return memory_.bytes() + results_memory_.bytes(); }

 private:
  std::int64_t row_bytes_;
  std::int64_t result_bytes_;
  std::int64_t rows_ = 0;
  Buffer memory_;
  Buffer results_memory_;
};

// Rows [begin, end) of a store, which belong to consecutive groups.
struct Work {
  std::int64_t first_group = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<std::int64_t> counts = {};  // of each of the groups
};

// The rows of each group are those of rank 0, of rank 1, ... Says which may be multiplied, and
// which results may go back.
class Progress {
 public:
  // `rows` has been laid out by group. `whole`: a group is multiplied at once.
  struct Groups {
    std::int64_t count;
    bool whole = false;
  };
  void begin(const comm::CountedRows& rows, Groups groups, int world);

  // Rows of the ranks' blocks that have come: the first ones.
  void set_received(int rank, std::int64_t rows) { received_[index(rank)] = rows; }

  // Finds rows to multiply: all those of the next groups that have come, at most about `most`, or
  // else many rows of one rank. False: there are none.
  bool find(std::int64_t most, Work& work) const;
  void finish(const Work& work);
  bool done() const { return left_ == 0; }

  // How many of the first rows of the rank's block have been multiplied.
  std::int64_t finished(int rank);

  // The first row of a rank's rows for the group, and how many there are.
  std::int64_t first(std::int64_t group, int rank) const { return part(group, rank).first; }
  std::int64_t count(std::int64_t group, int rank) const { return part(group, rank).count; }

 private:
  // Rows of one rank for one group.
  struct Part {
    std::int64_t in_block;  // rows of the rank's block before it
    std::int64_t first;     // its first row
    std::int64_t count;
    std::int64_t done = 0;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  const Part& part(std::int64_t group, int rank) const {
    return parts_[static_cast<std::size_t>(group * world_ + rank)];
  }
  bool has_all(std::int64_t group) const;
  bool is_untouched(std::int64_t group) const;
  std::int64_t rows_of(std::int64_t group) const;
  std::int64_t left_of(std::int64_t group) const;
  bool find_groups(std::int64_t first, std::int64_t most, Work& work) const;
  bool find_rest(std::int64_t group, std::int64_t most, Work& work) const;
  bool find_many(std::int64_t most, Work& work) const;

  std::int64_t groups_ = 0;
  bool whole_ = false;
  int world_ = 0;
  std::vector<Part> parts_;             // by group and rank
  std::vector<std::int64_t> received_;  // by rank
  std::vector<std::int64_t> next_;      // by rank: the first group that is not finished
  std::int64_t left_ = 0;               // rows
};

// Rows of this many from one rank are worth a product of their own, which reads the weight again.
inline constexpr std::int64_t kManyRows = 64;

// Blocks whose sizes both ranks know.
class KnownRows final : public comm::MatrixParcels {
 public:
  ConstTensorView from = {};
  std::vector<comm::RowBlock> to_peers = {};
  TensorView to = {};
  std::vector<comm::RowBlock> from_peers = {};

  void clear(int world) {
    to_peers.assign(static_cast<std::size_t>(world), {});
    from_peers.assign(static_cast<std::size_t>(world), {});
  }

 private:
  ConstTensorView outgoing() const override { return from; }
  const comm::RowBlock& block_to(int peer) const override {
    return to_peers[static_cast<std::size_t>(peer)];
  }
  std::span<const std::int64_t> counts_to(int /*peer*/) const override { return {}; }
  std::int64_t learn(int /*peer*/, std::span<const std::int64_t> /*counts*/) override { return 0; }
  void make_places() override {}
  TensorView incoming() const override { return to; }
  const comm::RowBlock& block_from(int peer) const override {
    return from_peers[static_cast<std::size_t>(peer)];
  }
};

}  // namespace plait::experts
