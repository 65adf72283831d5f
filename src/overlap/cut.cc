#include "overlap/cut.h"

#include <algorithm>
#include <utility>

#include "base/round_up.h"
#include "plait/collectives.h"

namespace plait::overlap {
namespace {

using base::ceil_div;

}  // namespace

Ownership Ownership::sharded(std::int64_t rows, std::int64_t columns, int world) {
  Ownership owners = {.columns = columns, .of_rank = {}};
  for (int rank = 0; rank < world; ++rank) {
    const Shard shard = balanced_shard(static_cast<std::size_t>(rows), rank, world);
    const auto begin = static_cast<std::int64_t>(shard.offset);
    owners.of_rank.push_back({begin, begin + static_cast<std::int64_t>(shard.count)});
  }
  return owners;
}

Ownership Ownership::replicated(std::int64_t rows, std::int64_t columns, int world) {
  return {.columns = columns,
          .of_rank = std::vector<Range>(static_cast<std::size_t>(world), Range{0, rows})};
}

std::int64_t Cut::Part::all_rows() const {
  std::int64_t all = 0;
  for (const Range& range : rows()) all += length(range);
  return all;
}

std::size_t Cut::Part::end_of_run(std::size_t first) const {
  std::size_t end = first + 1;
  while (end < rows().size() && rows()[end].begin == rows()[end - 1].end) ++end;
  return end;
}

// Piece `index` of `range` cut evenly in `count`, in whole units.
Range Cut::piece(Range range, std::int64_t index, std::int64_t count, std::int64_t unit) {
  const std::int64_t units = ceil_div(length(range), unit);
  const auto border = [&](std::int64_t i) {
    return std::min(range.end, range.begin + units * i / count * unit);
  };
  return {border(index), border(index + 1)};
}

void Cut::add(Part part) {
  part.first_chunk = chunks();
  part.chunks = 1;
  chunks_.push_back(
      {.part = static_cast<int>(parts_.size()), .index = 0, .pieces = 1, .columns = part.columns});
  parts_.push_back(std::move(part));
}

Cut Cut::by_columns(const Ownership& owners, const std::vector<Range>& columns) {
  Cut cut(static_cast<int>(owners.of_rank.size()));
  const auto rows = std::make_shared<const std::vector<Range>>(owners.of_rank);
  for (const Range& range : columns)
    cut.add({.columns = range, .of_rank = rows, .first_chunk = 0, .chunks = 0});
  return cut;
}

Cut Cut::by_rows(const Ownership& owners, int parts, const Plan& plan) {
  Cut cut(static_cast<int>(owners.of_rank.size()));
  Plan sized = plan;
  sized.parts = parts;
  std::vector<std::vector<Range>> of_rank;
  of_rank.reserve(owners.of_rank.size());
  for (const Range& rows : owners.of_rank)
    of_rank.push_back(plan::ranges_of(length(rows), sized, /*unit=*/1));
  for (int i = 0; i < parts; ++i) {
    std::vector<Range> part;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      const std::int64_t begin = owners.of_rank[rank].begin;
      const Range& rows = of_rank[rank][static_cast<std::size_t>(i)];
      part.push_back({begin + rows.begin, begin + rows.end});
    }
    cut.add({.columns = {0, owners.columns},
             .of_rank = std::make_shared<const std::vector<Range>>(std::move(part)),
             .first_chunk = 0,
             .chunks = 0});
  }
  return cut;
}

Cut Cut::in_chunks_of(std::int64_t elements, std::int64_t unit) const {
  Cut cut(world_);
  for (Part part : parts_) {
    std::int64_t most_rows = 0;
    for (const Range& rows : part.rows()) most_rows = std::max(most_rows, length(rows));
    const std::int64_t columns = length(part.columns);
    // Whole rows where a chunk has room for one: they lie together.
    const std::int64_t units = ceil_div(columns, unit);
    const std::int64_t most_units = std::max<std::int64_t>(1, elements / unit);
    const std::int64_t across = std::max<std::int64_t>(1, ceil_div(units, most_units));
    const std::int64_t width = std::clamp<std::int64_t>(ceil_div(units, across) * unit, 1,
                                                        std::max<std::int64_t>(1, columns));
    const std::int64_t room = std::max<std::int64_t>(1, elements / width);
    const std::int64_t down = std::max<std::int64_t>(1, ceil_div(most_rows, room));
    part.first_chunk = cut.chunks();
    for (std::int64_t i = 0; i < down; ++i) {
      for (std::int64_t j = 0; j < across; ++j) {
        cut.chunks_.push_back({.part = static_cast<int>(cut.parts_.size()),
                               .index = i,
                               .pieces = down,
                               .columns = piece(part.columns, j, across, unit)});
      }
    }
    part.chunks = cut.chunks() - part.first_chunk;
    cut.parts_.push_back(std::move(part));
  }
  return cut;
}

std::int64_t Cut::largest_block() const {
  std::int64_t largest = 0;
  for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) {
    for (int rank = 0; rank < world_; ++rank)
      largest = std::max(largest, block(chunk, rank).elements());
  }
  return largest;
}

}  // namespace plait::overlap
