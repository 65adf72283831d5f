// Grouped products that poll the communication now and then, a piece of the rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/core/group.h"
#include "experts/exchange.h"
#include "plait/experts.h"
#include "plait/grouped_gemm.h"

namespace plait::experts {

// A product of the layer's rows, whose weights all are of its kind.
struct ProductShape {
  std::int64_t n, k;
  Dtype out;
  std::int64_t shares = 1;  // of a sum, of which k is one
};
GroupedGemm select_product(const ExpertsDesc& desc, const ExpertsOptions& options,
                           const ProductShape& shape);

void multiply(GroupedGemm& gemm, const GroupedGemmCall& call, const comm::Group& group,
              PollStep poll_step);

// Rows that are multiplied at once: what is between two products takes no more memory than for
// these, and the weights are read from memory once for so many rows.
inline constexpr std::int64_t kMostRowsAtOnce = 2048;

// Rows [begin, end) of consecutive groups.
struct Piece {
  std::int64_t first_group;
  std::span<const std::int64_t> counts;
  std::int64_t begin;
  std::int64_t end;
};

// Cuts rows of groups, of which each has so many, in pieces.
template <class Visit>
void for_each_piece(std::span<const std::int64_t> counts, Visit&& visit) {
  std::vector<std::int64_t> its;
  std::size_t group = 0;
  std::int64_t done = 0;  // of the group's rows
  std::int64_t row = 0;
  while (group < counts.size()) {
    its.clear();
    const std::size_t first_group = group;
    std::int64_t left = kMostRowsAtOnce;
    while (left > 0 && group < counts.size()) {
      const std::int64_t count = std::min(left, counts[group] - done);
      its.push_back(count);
      left -= count;
      done += count;
      if (done < counts[group]) break;
      ++group;
      done = 0;
    }
    const std::int64_t end = row + kMostRowsAtOnce - left;
    if (end > row) {
      visit(Piece{.first_group = static_cast<std::int64_t>(first_group),
                  .counts = its,
                  .begin = row,
                  .end = end});
    }
    row = end;
  }
}

// The views of consecutive groups, if there are any.
template <class View>
std::span<const View> of_groups(std::span<const View> all, std::int64_t first, std::size_t count) {
  return all.empty() ? all : all.subspan(static_cast<std::size_t>(first), count);
}

}  // namespace plait::experts
