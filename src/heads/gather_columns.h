// Brings ranks' columns to their places in a matrix that every rank gets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fingerprint.h"
#include "comm/flow/gather_flow.h"
#include "comm/session/state.h"
#include "heads/logits.h"
#include "plait/collectives.h"

namespace plait::heads {

// Windows of fewer columns take the product longer, and their rows are short runs of bytes.
inline constexpr std::int64_t kLeastWindow = 512;

// How a matrix is cut: each rank's columns in windows, and a window's rows in chunks.
class ColumnCut {
 public:
  ColumnCut(const TensorView& all, std::vector<std::int64_t> counts, std::size_t chunk_bytes)
      : rows_(all.rows), counts_(std::move(counts)) {
    std::int64_t first = 0;
    for (const std::int64_t count : counts_) {
      firsts_.push_back(first);
      first += count;
    }
    const auto elements = static_cast<std::int64_t>(chunk_bytes / size_of(all.dtype));
    const std::int64_t wanted = elements / std::max<std::int64_t>(rows_, 1) / kPanel * kPanel;
    window_ = std::clamp(wanted, kLeastWindow, elements / kPanel * kPanel);
    rows_of_chunk_ = std::max<std::int64_t>(elements / window_, 1);
    chunks_of_window_ = std::max<std::int64_t>((rows_ + rows_of_chunk_ - 1) / rows_of_chunk_, 1);
  }

  Range columns(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    return {firsts_[at], firsts_[at] + counts_[at]};
  }
  const std::vector<std::int64_t>& counts() const { return counts_; }

  // Even nothing is one window, so that ranks that disagree about it notice.
  std::int64_t width() const { return window_; }
  std::int64_t windows(int rank) const {
    const std::int64_t count = counts_[static_cast<std::size_t>(rank)];
    return std::max<std::int64_t>((count + window_ - 1) / window_, 1);
  }
  Range window(int rank, std::int64_t number) const {
    const Range own = columns(rank);
    const std::int64_t begin = std::min(own.begin + number * window_, own.end);
    return {begin, std::min(begin + window_, own.end)};
  }

  std::uint32_t chunks(int rank) const { return chunks_until(windows(rank)); }
  std::uint32_t chunks_until(std::int64_t window) const {
    return static_cast<std::uint32_t>(window * chunks_of_window_);
  }
  TensorView block(const TensorView& all, int rank, std::uint32_t chunk) const {
    const Range columns = window(rank, chunk / chunks_of_window_);
    const std::int64_t first = chunk % chunks_of_window_ * rows_of_chunk_;
    return all.row_range(first, std::min(first + rows_of_chunk_, rows_))
        .column_range(columns.begin, columns.end);
  }

 private:
  std::int64_t rows_;
  std::vector<std::int64_t> counts_, firsts_;
  std::int64_t window_, rows_of_chunk_, chunks_of_window_;
};

// All that ranks must agree about beside the cut: the rows of the whole call, and the plan if it
// says which rows are gathered together.
struct Agreed {
  std::int64_t rows;
  std::uint32_t plan = 0;
};

// Brings the windows of all ranks to their places; this rank's are there already.
class GatherColumns final : public Pending::Task, private comm::Shares {
 public:
  GatherColumns(Communicator::State& state, const TensorView& all, const ColumnCut& cut,
                const Agreed& agreed)
      : Task({.operation = Operation::all_gather,
              .dtype = all.dtype,
              .wire = all.dtype,
              .sizes = {agreed.rows * all.cols, fingerprint_of(cut, agreed), 1}}),
        rank_(state.group().rank()),
        all_(all),
        cut_(cut),
        flow_(state.lanes(), state.host_ranks(), *this) {
    flow_.begin();
  }

  void ready(std::int64_t windows) { ready_ = cut_.chunks_until(windows); }
  // The windows that end with this rank's first columns, up to `end`.
  void ready_to(std::int64_t end) {
    const Range own = cut_.columns(rank_);
    const bool is_all = end == own.end - own.begin;
    ready(is_all ? cut_.windows(rank_) : end / cut_.width());
  }

 private:
  static std::int64_t fingerprint_of(const ColumnCut& cut, const Agreed& agreed) {
    const std::vector<std::int64_t> rows = {agreed.rows, agreed.plan};
    return static_cast<std::int64_t>(base::fingerprint(cut.counts(), base::fingerprint(rows)));
  }

  std::uint32_t chunks(int owner) const override { return cut_.chunks(owner); }
  ConstTensorView own(std::uint32_t chunk) const override { return cut_.block(all_, rank_, chunk); }
  TensorView place(std::uint32_t chunk, int owner) const override {
    return cut_.block(all_, owner, chunk);
  }

  bool advance() override {
    flow_.ready(ready_);
    flow_.step();
    return ready_ == cut_.chunks(rank_) && flow_.done();
  }
  comm::Awaited awaited() const override { return flow_.awaited(); }

  int rank_;
  TensorView all_;
  ColumnCut cut_;
  comm::GatherFlow flow_;
  std::uint32_t ready_ = 0;
};

}  // namespace plait::heads
