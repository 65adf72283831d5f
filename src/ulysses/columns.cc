#include "ulysses/columns.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "plait/collectives.h"

namespace plait {
namespace ulysses {
namespace {

// Far beyond any matrix, and small enough that columns can be added up.
constexpr std::int64_t kMostColumns = std::int64_t{1} << 42;

ColumnRange share(std::int64_t whole, int rank, int world) {
  const Shard shard = balanced_shard(static_cast<std::size_t>(whole), rank, world);
  return {static_cast<std::int64_t>(shard.offset), static_cast<std::int64_t>(shard.count)};
}

void check_heads(std::string_view caller, const Heads& heads, int world) {
  PLAIT_CHECK(world >= 1, caller, ": ", world, " ranks");
  PLAIT_CHECK(heads.heads >= 1 && heads.kv_heads >= 1 && heads.size >= 1 &&
                  heads.heads < kMostColumns && heads.size < kMostColumns / heads.heads / 3,
              caller, ": ", heads.heads, " heads, ", heads.kv_heads, " kv heads, of ", heads.size,
              " columns");
  PLAIT_CHECK(heads.heads % heads.kv_heads == 0, caller, ": ", heads.heads,
              " heads can't be shared evenly by ", heads.kv_heads, " kv heads");
  PLAIT_CHECK(heads.kv_heads >= world, caller, ": ", heads.kv_heads, " kv heads for ", world,
              " ranks; repeat the weight's rows of k and v until each rank has a head");
}

}  // namespace

std::int64_t count_of(const std::vector<ColumnRange>& group) {
  std::int64_t count = 0;
  for (const ColumnRange& range : group) count += range.count;
  return count;
}

ColumnGroups joined(const ColumnGroups& columns) {
  ColumnGroups groups(columns.size());
  for (std::size_t rank = 0; rank < columns.size(); ++rank) {
    for (const ColumnRange& range : columns[rank]) {
      std::vector<ColumnRange>& group = groups[rank];
      if (range.count == 0) continue;
      if (!group.empty() && group.back().first + group.back().count == range.first) {
        group.back().count += range.count;
      } else {
        group.push_back(range);
      }
    }
  }
  return groups;
}

void check(std::string_view caller, const ColumnGroups& columns, std::int64_t of, int world) {
  PLAIT_CHECK(std::ssize(columns) == world, caller, ": there are ", columns.size(),
              " groups of columns for ", world, " ranks");
  std::vector<ColumnRange> all;
  for (std::size_t rank = 0; rank < columns.size(); ++rank) {
    for (const ColumnRange& range : columns[rank]) {
      PLAIT_CHECK(range.first >= 0 && range.count >= 0 && range.first <= of &&
                      range.count <= of - range.first,
                  caller, ": rank ", rank, " gets ", range.count, " columns from ", range.first,
                  " on, of ", of);
      if (range.count > 0) all.push_back(range);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const ColumnRange& a, const ColumnRange& b) { return a.first < b.first; });
  std::int64_t next = 0;
  for (const ColumnRange& range : all) {
    PLAIT_CHECK(range.first >= next, caller, ": column ", range.first, " is in two groups");
    PLAIT_CHECK(range.first == next, caller, ": column ", next, " is in no group");
    next += range.count;
  }
  PLAIT_CHECK(next == of, caller, ": column ", next, " is in no group");
}

}  // namespace ulysses

ColumnGroups equal_columns(std::int64_t columns, int world) {
  PLAIT_CHECK(world >= 1, "equal_columns: ", world, " ranks");
  PLAIT_CHECK(columns >= 0, "equal_columns: ", columns, " columns");
  ColumnGroups groups;
  for (int rank = 0; rank < world; ++rank) groups.push_back({ulysses::share(columns, rank, world)});
  return groups;
}

ColumnGroups qkv_columns(const Heads& heads, int world) {
  ulysses::check_heads("qkv_columns", heads, world);
  const std::int64_t served = heads.heads / heads.kv_heads;
  const std::int64_t all_q = heads.heads * heads.size;
  const std::int64_t all_kv = heads.kv_heads * heads.size;
  ColumnGroups groups;
  for (int rank = 0; rank < world; ++rank) {
    const ColumnRange kv = ulysses::share(heads.kv_heads, rank, world);
    const ColumnRange q = {kv.first * served * heads.size, kv.count * served * heads.size};
    const ColumnRange k = {all_q + kv.first * heads.size, kv.count * heads.size};
    if (!heads.interleaved) {
      groups.push_back({q, k, {k.first + all_kv, k.count}});
      continue;
    }
    // They lie as [q | k | v] for each kv head, and become [all q | all k | all v].
    const std::int64_t stride = (served + 2) * heads.size;
    std::vector<ColumnRange> group;
    const auto add = [&](std::int64_t offset, std::int64_t count) {
      for (std::int64_t head = kv.first; head < kv.first + kv.count; ++head)
        group.push_back({head * stride + offset, count});
    };
    add(0, served * heads.size);
    add(served * heads.size, heads.size);
    add((served + 1) * heads.size, heads.size);
    groups.push_back(std::move(group));
  }
  return groups;
}

ColumnGroups head_columns(const Heads& heads, int world) {
  ulysses::check_heads("head_columns", heads, world);
  const std::int64_t served = heads.heads / heads.kv_heads * heads.size;
  ColumnGroups groups;
  for (int rank = 0; rank < world; ++rank) {
    const ColumnRange kv = ulysses::share(heads.kv_heads, rank, world);
    groups.push_back({{kv.first * served, kv.count * served}});
  }
  return groups;
}

}  // namespace plait
