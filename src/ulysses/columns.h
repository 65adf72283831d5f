// Groups of columns, from the inside.
#pragma once

#include <cstdint>
#include <string_view>

#include "plait/ulysses.h"

namespace plait::ulysses {

std::int64_t count_of(const std::vector<ColumnRange>& group);
std::int64_t most_of(const ColumnGroups& columns);  // that a rank has

// Without empty ranges, and neighbours as one: equal groups are then equal lists.
ColumnGroups joined(const ColumnGroups& columns);

// Refuses groups that don't have each of so many columns, or one of them twice on a rank.
void check(std::string_view caller, const ColumnGroups& columns, std::int64_t of, int world);

std::uint64_t fingerprint_of(const ColumnGroups& columns);

// Columns that several ranks have, and the places of what all but the first of these ranks bring.
struct SharedColumns {
  ColumnRange columns;
  std::vector<std::int64_t> copies;  // of the first of the columns, in the order of ranks
};

// The places of ranks' columns in one matrix: the first rank that has a column brings it to its own
// place, and the others to places beyond the whole.
struct Places {
  ColumnGroups groups;  // the columns of each rank, as places
  std::vector<SharedColumns> shared;
  std::int64_t beyond = 0;  // places beyond the whole
};
Places places_of(const ColumnGroups& columns, std::int64_t of);

}  // namespace plait::ulysses
