#include "ulysses/columns.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/fingerprint.h"
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
  if (heads.kv_heads >= world) return;
  PLAIT_CHECK(world % heads.kv_heads == 0, caller, ": ", heads.kv_heads, " kv heads for ", world,
              " ranks, which can't share them evenly");
  PLAIT_CHECK(heads.heads >= world, caller, ": ", heads.heads, " heads for ", world, " ranks");
}

// The heads of a rank, and the kv heads that serve them.
struct OwnHeads {
  ColumnRange q, kv;
};
OwnHeads heads_of(const Heads& heads, int rank, int world) {
  const std::int64_t served = heads.heads / heads.kv_heads;
  if (heads.kv_heads >= world) {
    const ColumnRange kv = share(heads.kv_heads, rank, world);
    return {.q = {kv.first * served, kv.count * served}, .kv = kv};
  }
  // 2 kv heads for 4 ranks: 0 0 1 1
  const int sharing = world / static_cast<int>(heads.kv_heads);
  const std::int64_t kv = rank / sharing;
  const ColumnRange own = share(served, rank % sharing, sharing);
  return {.q = {kv * served + own.first, own.count}, .kv = {kv, 1}};
}

}  // namespace

std::int64_t count_of(const std::vector<ColumnRange>& group) {
  std::int64_t count = 0;
  for (const ColumnRange& range : group) count += range.count;
  return count;
}

std::int64_t most_of(const ColumnGroups& columns) {
  std::int64_t most = 0;
  for (const auto& group : columns) most = std::max(most, count_of(group));
  return most;
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
  const auto sort = [](auto begin, auto end) {
    std::sort(begin, end,
              [](const ColumnRange& a, const ColumnRange& b) { return a.first < b.first; });
  };
  for (std::size_t rank = 0; rank < columns.size(); ++rank) {
    const std::ptrdiff_t before = std::ssize(all);
    for (const ColumnRange& range : columns[rank]) {
      PLAIT_CHECK(range.first >= 0 && range.count >= 0 && range.first <= of &&
                      range.count <= of - range.first,
                  caller, ": rank ", rank, " gets ", range.count, " columns from ", range.first,
                  " on, of ", of);
      if (range.count > 0) all.push_back(range);
    }
    sort(all.begin() + before, all.end());
    std::int64_t end = 0;
    for (auto range = all.begin() + before; range != all.end(); ++range) {
      PLAIT_CHECK(range->first >= end, caller, ": rank ", rank, " gets column ", range->first,
                  " twice");
      end = range->first + range->count;
    }
  }
  sort(all.begin(), all.end());
  std::int64_t next = 0;
  for (const ColumnRange& range : all) {
    PLAIT_CHECK(range.first <= next, caller, ": column ", next, " is in no group");
    next = std::max(next, range.first + range.count);
  }
  PLAIT_CHECK(next == of, caller, ": column ", next, " is in no group");
}

std::uint64_t fingerprint_of(const ColumnGroups& columns) {
  std::uint64_t hash = base::fingerprint(std::vector<std::int64_t>{std::ssize(columns)});
  for (const std::vector<ColumnRange>& group : columns) {
    std::vector<std::int64_t> numbers = {std::ssize(group)};
    for (const ColumnRange& range : group) {
      numbers.push_back(range.first);
      numbers.push_back(range.count);
    }
    hash = base::fingerprint(numbers, hash);
  }
  return hash;
}

Places places_of(const ColumnGroups& columns, std::int64_t of) {
  // Ranges that share a column are cut where others begin and end, until they are equal.
  std::set<std::int64_t> cuts;
  for (const std::vector<ColumnRange>& group : columns) {
    for (const ColumnRange& range : group) cuts.insert({range.first, range.first + range.count});
  }
  Places places;
  std::map<std::int64_t, SharedColumns> seen;
  for (const std::vector<ColumnRange>& group : columns) {
    std::vector<ColumnRange>& own = places.groups.emplace_back();
    for (const ColumnRange& range : group) {
      for (std::int64_t first = range.first; first < range.first + range.count;) {
        const std::int64_t count = *cuts.upper_bound(first) - first;
        const auto [found, is_new] =
            seen.try_emplace(first, SharedColumns{.columns = {first, count}, .copies = {}});
        if (is_new) {
          own.push_back({first, count});
        } else {
          own.push_back({of + places.beyond, count});
          found->second.copies.push_back(of + places.beyond);
          places.beyond += count;
        }
        first += count;
      }
    }
  }
  for (auto& [first, shared] : seen)
    if (!shared.copies.empty()) places.shared.push_back(std::move(shared));
  return places;
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
    const auto [own, kv] = ulysses::heads_of(heads, rank, world);
    const ColumnRange q = {own.first * heads.size, own.count * heads.size};
    const ColumnRange k = {all_q + kv.first * heads.size, kv.count * heads.size};
    if (!heads.interleaved) {
      groups.push_back({q, k, {k.first + all_kv, k.count}});
      continue;
    }
    // They lie as [q | k | v] for each kv head, and become [all q | all k | all v].
    const std::int64_t stride = (served + 2) * heads.size;
    std::vector<ColumnRange> group;
    const std::int64_t each = own.count / kv.count;  // of the heads that a kv head serves
    const auto add = [&](std::int64_t head_offset, std::int64_t count) {
      for (std::int64_t head = kv.first; head < kv.first + kv.count; ++head)
        group.push_back({head * stride + head_offset * heads.size, count * heads.size});
    };
    add(own.first - kv.first * served, each);
    add(served, 1);
    add(served + 1, 1);
    groups.push_back(std::move(group));
  }
  return groups;
}

ColumnGroups head_columns(const Heads& heads, int world) {
  ulysses::check_heads("head_columns", heads, world);
  ColumnGroups groups;
  for (int rank = 0; rank < world; ++rank) {
    const ColumnRange own = ulysses::heads_of(heads, rank, world).q;
    groups.push_back({{own.first * heads.size, own.count * heads.size}});
  }
  return groups;
}

}  // namespace plait
