// How many rows of each group a rank has for each, or gets from each, and where they lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "comm/core/group.h"
#include "comm/flow/row_block.h"

namespace plait::comm {

// Far beyond any memory, and small enough that those of all groups and ranks can be added up.
inline constexpr std::int64_t kMostRows = std::int64_t{1} << 36;
inline constexpr std::int64_t kMostBytesOfRows = std::int64_t{1} << 46;

class CountedRows {
 public:
  // `row_bytes`: of the rows that ranks tell of.
  CountedRows(int world, std::int64_t groups, std::int64_t row_bytes)
      : groups_(groups),
        row_bytes_(row_bytes),
        counts_(static_cast<std::size_t>(world) * static_cast<std::size_t>(groups)),
        blocks_(static_cast<std::size_t>(world)) {}

  std::span<std::int64_t> counts(int rank) {
    return std::span(counts_).subspan(index(rank, 0), static_cast<std::size_t>(groups_));
  }
  std::span<const std::int64_t> counts(int rank) const {
    return std::span(counts_).subspan(index(rank, 0), static_cast<std::size_t>(groups_));
  }
  std::span<const std::int64_t> all_counts() const { return counts_; }

  // Takes the numbers that a peer has sent, and returns their sum. Those that can't be fail the
  // group.
  std::int64_t learn(int peer, std::span<const std::int64_t> counts, std::string_view call,
                     Group& group) {
    const auto refuse = [&](std::int64_t rows, const char* why) {
      group.fail_and_raise({Code::mismatch, peer,
                            base::sentence(call, ": rank ", peer, " sends rank ", group.rank(), " ",
                                           rows, " rows", why)});
    };
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) {
      if (count < 0 || count > kMostRows) refuse(count, "");
      sum += count;
    }
    if (sum > most_rows()) refuse(sum, ", for which no memory has room");
    std::copy(counts.begin(), counts.end(), this->counts(peer).begin());
    return sum;
  }

  const RowBlock& block(int rank) const { return blocks_[static_cast<std::size_t>(rank)]; }

  // Lays all blocks out, one rank after another or one group after another.
  void lay_out(bool by_group) {
    const auto world = static_cast<std::int64_t>(blocks_.size());
    rows_ = 0;
    for (RowBlock& block : blocks_) block = {};
    for (std::int64_t outer = 0; outer < (by_group ? groups_ : world); ++outer) {
      for (std::int64_t inner = 0; inner < (by_group ? world : groups_); ++inner) {
        const std::int64_t rank = by_group ? inner : outer;
        const std::int64_t count = counts_[index(rank, by_group ? outer : inner)];
        blocks_[static_cast<std::size_t>(rank)].add(rows_, count);
        rows_ += count;
      }
    }
  }
  std::int64_t rows() const { return rows_; }

  // No memory has room for more.
  std::int64_t most_rows() const {
    return kMostBytesOfRows / std::max<std::int64_t>(row_bytes_, 1);
  }

  // The rank that has the largest block.
  int rank_of_most() const {
    const auto largest =
        std::max_element(blocks_.begin(), blocks_.end(),
                         [](const auto& a, const auto& b) { return a.rows() < b.rows(); });
    return static_cast<int>(largest - blocks_.begin());
  }

 private:
  std::size_t index(std::int64_t rank, std::int64_t group) const {
    return static_cast<std::size_t>(rank * groups_ + group);
  }

  std::int64_t groups_;
  std::int64_t row_bytes_;
  std::vector<std::int64_t> counts_;
  std::vector<RowBlock> blocks_;
  std::int64_t rows_ = 0;
};

}  // namespace plait::comm
