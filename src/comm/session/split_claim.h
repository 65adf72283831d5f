// The text of each rank to the others when a group is split.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plait::comm {

struct SplitClaim {
  std::int32_t color;
  std::int32_t key;

  std::string bytes() const;
};

// The ranks of the part with this color, by key and then by rank; none where it is negative.
// `claims`: of all ranks. Throws Error{mismatch} where a rank has sent something else.
std::vector<int> members_of(const std::vector<std::string>& claims, int color);

}  // namespace plait::comm
