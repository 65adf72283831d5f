// How large the parts and chunks of a plan are: what the schedules cut by, and the cost model
// counts with.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/dtype.h"
#include "plait/gemm.h"
#include "plait/plan.h"

namespace plait {

inline std::int64_t length(Range range) { return range.end - range.begin; }

// [0, total) in `parts` ranges, the first and the last so many percent of the others; borders are
// multiples of `unit`, where there is enough for each part to have one. Some may be empty.
std::vector<Range> ranges_of(std::int64_t total, const Plan& plan, std::int64_t unit);

// [0, columns) in chunks of `width`, with smaller ones at both ends.
std::vector<Range> ramped(std::int64_t columns, std::int64_t width);

// What a product is best cut at: the width of a weight's panel.
inline constexpr std::int64_t kPanel = 64;

// In narrower windows a product whose X no cache holds is some percent slower.
inline constexpr std::int64_t kFullSpeed = 256;

// A chunk that is copied into its slot: enough to hide what it costs to hand one over.
inline constexpr std::int64_t kCopiedBytes = 256 * 1024;

// Partial sums of all ranks' rows, as they travel.
struct PartialSums {
  std::int64_t m;
  std::int64_t n;
  Dtype dtype;

  std::int64_t bytes() const { return m * n * static_cast<std::int64_t>(size_of(dtype)); }
};

// Whether they are so few that a fused plan makes them in a rank's own memory, and copies them into
// a slot at once.
bool are_copied_at_once(const PartialSums& sums);

// Whether an all-reduce gives all of them to everybody, who adds them up alone.
bool is_one_step(const PartialSums& sums, int world);

// Elements of the most sums that are given to everybody; 0: none are.
std::int64_t most_in_one_step(Dtype dtype, int world);

// Rows that all ranks gather, and how many columns a rank's weight has that they are for.
struct GatheredRows {
  std::int64_t m;
  std::int64_t n;
};

// What follows depends on whether ranks read each other's memory, or send over a link: an emulated
// one, or what there is between hosts.

// Whether a fused plan multiplies no row before all are there: few take as long as reading the
// weight does, which is read once then.
bool gathers_all_first(const GatheredRows& rows, int world, bool linked);

// How wide the chunks of a fused plan are that doesn't say it.
std::int64_t suitable_chunk(const PartialSums& sums, int world, bool linked);

// Elements of the largest block of such chunks, each a rank's rows by a chunk's columns, of sums of
// so many rows or fewer: fewer rows may have the larger blocks.
std::int64_t largest_suitable_block(const PartialSums& most, int world, bool linked);

}  // namespace plait
