// Groups of columns, from the inside.
#pragma once

#include <cstdint>
#include <string_view>

#include "plait/ulysses.h"

namespace plait::ulysses {

std::int64_t count_of(const std::vector<ColumnRange>& group);

// Without empty ranges, and neighbours as one: equal groups are then equal lists.
ColumnGroups joined(const ColumnGroups& columns);

// Refuses groups that don't have each of so many columns once.
void check(std::string_view caller, const ColumnGroups& columns, std::int64_t of, int world);

}  // namespace plait::ulysses
