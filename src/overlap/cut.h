// How a matrix is cut: in parts, which are multiplied at once, and chunks, which travel at once.
//
// Every rank has rows of the matrix (its shard, or all of them where each rank owns all rows). A
// part is some columns, and some rows of every rank; a chunk is a piece of a part, and each rank's
// block of it is sent by itself. All ranks cut alike: chunk i of one is chunk i of all.
//
//   columns      0    64        192               448
//   rank 0's   ┌────┬─────────┬─────────────────┬──       a matrix in parts of columns, each one
//   rows       │ 0  │    1    │        2        │         chunk: small ones come first, so that
//   rank 1's   ├────┼─────────┼─────────────────┼──       something travels soon
//   rows       │ 0  │    1    │        2        │
//              └────┴─────────┴─────────────────┴──
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plait/dtype.h"
#include "plait/gemm.h"
#include "plait/plan.h"
#include "plan/sizes.h"

namespace plait::overlap {

using plan::length;

struct Block {
  Range rows;
  Range columns;

  std::int64_t elements() const { return length(rows) * length(columns); }
};

// A matrix, and whose rows are whose.
struct Ownership {
  std::int64_t columns;
  std::vector<Range> of_rank;  // rows

  // The first (rows mod world) ranks have one row more.
  static Ownership sharded(std::int64_t rows, std::int64_t columns, int world);
  // Every rank has all rows.
  static Ownership replicated(std::int64_t rows, std::int64_t columns, int world);
};

class Cut {
 public:
  struct Part {
    Range columns;
    std::shared_ptr<const std::vector<Range>> of_rank;  // which parts of columns have in common
    std::uint32_t first_chunk;
    std::uint32_t chunks;

    const std::vector<Range>& rows() const { return *of_rank; }  // by rank
    std::uint32_t end_chunk() const { return first_chunk + chunks; }
    std::int64_t all_rows() const;  // of all ranks together

    // The first rank behind `first` whose rows don't follow those of the rank before it.
    std::size_t end_of_run(std::size_t first) const;
  };

  // A part for each range of columns, a chunk for each part.
  static Cut by_columns(const Ownership& owners, const std::vector<Range>& columns);

  // A part, which is one chunk, for each of the plan's shares of all ranks' rows. One part alone is
  // all rows.
  static Cut by_rows(const Ownership& owners, int parts, const Plan& plan);

  // Cuts parts that are larger into chunks of at most `elements` a block. Columns are cut at
  // multiples of `unit` from their part's first; there is always room for one unit.
  Cut in_chunks_of(std::int64_t elements, std::int64_t unit = 1) const;

  const std::vector<Part>& parts() const { return parts_; }
  std::uint32_t chunks() const { return static_cast<std::uint32_t>(chunks_.size()); }
  int part_of(std::uint32_t chunk) const { return chunks_[chunk].part; }
  Block block(std::uint32_t chunk, int rank) const {
    const Chunk& one = chunks_[chunk];
    const Range rows = parts_[static_cast<std::size_t>(one.part)].rows()[rank];
    return {.rows = one.pieces == 1 ? rows : piece(rows, one.index, one.pieces),
            .columns = one.columns};
  }

  // Elements of the largest block.
  std::int64_t largest_block() const;

 private:
  // The common part of all ranks' blocks of a chunk: of its part, some columns, and of every rank's
  // rows one of so many pieces.
  struct Chunk {
    int part;
    std::int64_t index, pieces;
    Range columns;
  };

  explicit Cut(int world) : world_(world) {}
  void add(Part part);
  static Range piece(Range range, std::int64_t index, std::int64_t count, std::int64_t unit = 1);

  int world_;
  std::vector<Part> parts_;
  std::vector<Chunk> chunks_;
};

}  // namespace plait::overlap
