// The rows that one rank has for another, and how they are cut in chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/round_up.h"
#include "plait/dtype.h"
#include "plait/tensor_view.h"

namespace plait::comm {

// Rows [begin, end).
struct RowRange {
  std::int64_t begin;
  std::int64_t end;

  std::int64_t count() const { return end - begin; }
};

// A block of rows, which may lie apart in their matrix: runs of adjacent ones, in order.
class RowBlock {
 public:
  // The next `count` rows of the block are in the matrix from row `first` on.
  void add(std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    const bool follows = !runs_.empty() && runs_.back().first + rows_ - runs_.back().at == first;
    if (!follows) runs_.push_back({.at = rows_, .first = first});
    rows_ += count;
  }

  std::int64_t rows() const { return rows_; }

  // Calls visit(rows of the matrix, rows of the block before these) for some rows of the block.
  template <class Visit>
  void for_each_run(RowRange of_block, Visit&& visit) const {
    if (of_block.count() <= 0) return;
    auto run = std::upper_bound(runs_.begin(), runs_.end(), of_block.begin,
                                [](std::int64_t row, const Run& one) { return row < one.at; });
    --run;
    for (std::int64_t row = of_block.begin; row < of_block.end; ++run) {
      const std::int64_t end =
          std::min(of_block.end, run + 1 == runs_.end() ? rows_ : (run + 1)->at);
      const std::int64_t first = run->first + row - run->at;
      visit(RowRange{first, first + end - row}, row);
      row = end;
    }
  }

 private:
  struct Run {
    std::int64_t at;     // of the block
    std::int64_t first;  // of the matrix
  };

  std::vector<Run> runs_;
  std::int64_t rows_ = 0;
};

// The part of a block that travels as one chunk.
struct RowPiece {
  RowRange rows;
  RowRange columns;

  std::size_t elements() const {
    return static_cast<std::size_t>(rows.count()) * static_cast<std::size_t>(columns.count());
  }
};

// How blocks are cut. The first chunk begins with a header, the numbers of rows of each group, and
// has as many rows as fit behind it. Chunks have whole rows, unless a row is longer than a chunk:
// then each chunk is a piece of one row. Without groups there is no header: both ranks know how
// many rows there are, and a block without rows is no chunk.
class RowCut {
 public:
  // `chunk_bytes`: the largest chunk, a multiple of an element; it has room for the header.
  RowCut(const ConstTensorView& rows, std::int64_t groups, std::size_t chunk_bytes)
      : columns_(rows.cols),
        dtype_(rows.dtype),
        header_bytes_(base::round_up(static_cast<std::size_t>(groups) * sizeof(std::int64_t), 64)) {
    const std::size_t row_bytes = rows.row_bytes();
    if (row_bytes == 0) return;
    piece_columns_ =
        std::min(columns_, static_cast<std::int64_t>(chunk_bytes / size_of(rows.dtype)));
    pieces_ = base::ceil_div(columns_, piece_columns_);
    per_chunk_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(chunk_bytes / row_bytes));
    if (pieces_ == 1)
      in_first_ = static_cast<std::int64_t>((chunk_bytes - header_bytes_) / row_bytes);
  }

  std::size_t header_bytes() const { return header_bytes_; }

  bool has_header() const { return header_bytes_ > 0; }

  // How many chunks a block of so many rows is. Even one without rows is a chunk, for its header.
  std::uint32_t chunks(std::int64_t rows) const {
    if (rows == 0 && !has_header()) return 0;
    if (pieces_ == 0 || rows <= in_first_) return 1;
    // A peer's number of rows may be anything; so many chunks never come.
    constexpr std::int64_t kMostChunks = std::numeric_limits<std::uint32_t>::max() - 1;
    const std::int64_t turns = base::ceil_div(rows - in_first_, per_chunk_);
    if (turns >= kMostChunks / pieces_) return static_cast<std::uint32_t>(kMostChunks);
    return static_cast<std::uint32_t>(1 + turns * pieces_);
  }

  // The rows and columns of a chunk of a block of so many rows.
  RowPiece piece(std::uint32_t chunk, std::int64_t rows) const {
    if (pieces_ == 0) return {.rows = {0, 0}, .columns = {0, 0}};
    if (chunk == 0) return {.rows = {0, std::min(rows, in_first_)}, .columns = {0, columns_}};
    const std::int64_t number = chunk - 1;
    const std::int64_t begin = in_first_ + number / pieces_ * per_chunk_;
    const std::int64_t column = number % pieces_ * piece_columns_;
    return {.rows = {begin, std::min(rows, begin + per_chunk_)},
            .columns = {column, std::min(columns_, column + piece_columns_)}};
  }

  // How many chunks of the block have none but its first `done` rows.
  std::uint32_t whole_chunks(std::int64_t done, std::int64_t rows) const {
    if (done >= rows || pieces_ == 0) return chunks(rows);
    if (done < in_first_) return 0;
    return static_cast<std::uint32_t>(1 + (done - in_first_) / per_chunk_ * pieces_);
  }

  std::size_t bytes(std::uint32_t chunk, std::int64_t rows) const {
    return (chunk == 0 ? header_bytes_ : 0) + piece(chunk, rows).elements() * size_of(dtype_);
  }

 private:
  std::int64_t columns_;
  Dtype dtype_;
  std::size_t header_bytes_;
  std::int64_t pieces_ = 0;         // of a row; 0: rows have no bytes
  std::int64_t piece_columns_ = 0;  // of each but the last
  std::int64_t per_chunk_ = 0;      // rows
  std::int64_t in_first_ = 0;       // rows behind the header
};

}  // namespace plait::comm
