// The sizes of a plan's parts and chunks, for the schedules and for the cost model.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/dtype.h"
#include "plait/gemm.h"
#include "plait/plan.h"
#include "tensor/coded_rows.h"

namespace plait::plan {

inline std::int64_t length(Range range) { return range.end - range.begin; }

// Divides [0, total) into `parts` ranges. The first and the last have so many percent of the size
// of the others. Borders are multiples of `unit` if every part can have at least one unit. Some
// ranges may be empty.
std::vector<Range> ranges_of(std::int64_t total, const Plan& plan, std::int64_t unit);

// Divides [0, columns) into chunks of `width`, with smaller ones at both ends.
std::vector<Range> ramped(std::int64_t columns, std::int64_t width);

// The width of a weight's panel. Products are divided at its multiples.
inline constexpr std::int64_t kPanel = 64;

// In narrower windows a product whose X fits no cache is several percent slower.
inline constexpr std::int64_t kFullSpeed = 256;

// The size of a chunk that is copied into its slot: enough to hide the cost of handing it over.
inline constexpr std::int64_t kCopiedBytes = 256 * 1024;

// Elements of a chunk that is copied. Sums on an s8 wire come back wider, if they come back.
constexpr std::int64_t copied_elements(Dtype dtype) {
  return kCopiedBytes / (dtype == Dtype::s8 ? 2 : static_cast<std::int64_t>(size_of(dtype)));
}

// Bytes of a block of partial sums, as it is sent.
constexpr std::int64_t wire_bytes(Dtype wire, std::int64_t rows, std::int64_t columns) {
  if (wire == Dtype::s8) return tensor::coded_bytes(rows, columns);
  return rows * columns * static_cast<std::int64_t>(size_of(wire));
}

// Bytes that no block of so many elements in so many rows exceeds on the wire.
constexpr std::int64_t most_wire_bytes(Dtype wire, std::int64_t elements, std::int64_t rows) {
  if (wire == Dtype::s8) return elements + 2 * (elements / tensor::kScaleGroup + rows);
  return elements * static_cast<std::int64_t>(size_of(wire));
}

// Bytes of each element of wide blocks.
constexpr double wire_bytes_per_element(Dtype wire) {
  return static_cast<double>(wire_bytes(wire, 1, kPanel)) / static_cast<double>(kPanel);
}

// The dtype of partial sums before they are sent.
constexpr Dtype partial_dtype(Dtype wire) { return wire == Dtype::s8 ? Dtype::f32 : wire; }

// Divides the n columns of partial sums into a plan's parts, or into fused chunks of `width`. On an
// s8 wire no part and no chunk divides columns that share a scale, whatever the plan says: the bits
// must not depend on it.
std::vector<Range> column_parts(std::int64_t n, const Plan& plan, Dtype wire);
std::vector<Range> column_chunks(std::int64_t n, std::int64_t width, Dtype wire);

// Partial sums of the rows of all ranks, as they are sent.
struct PartialSums {
  std::int64_t m;
  std::int64_t n;
  Dtype dtype;

  std::int64_t bytes() const { return wire_bytes(dtype, m, n); }
};

// True if there are so few partial sums that a fused plan computes them in the rank's own memory,
// and copies each slot at once.
bool are_copied_at_once(const PartialSums& sums);

// True if an all-reduce sends all partial sums to every rank, which sums them alone.
bool is_one_step(const PartialSums& sums, int world);

// Partial sums of more elements are never sent to every rank; 0: none are.
std::int64_t most_in_one_step(Dtype dtype, int world);

// The rows that all ranks gather, and the columns of a rank's weight.
struct GatheredRows {
  std::int64_t m;
  std::int64_t n;
};

// In what follows, `linked` means that ranks send over a link, emulated or between hosts, and don't
// read each other's memory.
//
// True if a fused plan multiplies only after all rows have arrived. Few rows take no longer than
// reading the weight, which is then read once.
bool gathers_all_first(const GatheredRows& rows, int world, bool linked);

// The width of a fused plan's chunks if the plan does not set it.
std::int64_t suitable_chunk(const PartialSums& sums, int world, bool linked);

// Elements of the largest block of such chunks, each a rank's rows by a chunk's columns, of sums of
// so many rows or fewer: fewer rows may have the larger blocks.
std::int64_t largest_suitable_block(const PartialSums& most, int world, bool linked);

}  // namespace plait::plan
