// The results of checking a case on a rank.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace plait::verify {

struct Findings {
  std::string failure;  // empty: none
  bool as_one = false;  // a sum over ranks' shares was compared with that of one rank
};

// The number by which a test damages the results of one rank that has everything.
inline constexpr std::size_t kOnOneRank = std::numeric_limits<std::size_t>::max();

}  // namespace plait::verify
