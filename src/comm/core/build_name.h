// Which build of plait this is: what ranks compare before they share anything.
#pragma once

#include <string_view>

namespace plait::comm {

// "0.1.0+5f0c1d2e3a4b", without blanks: the version, and a hash of the sources that decide how a
// call is cut into chunks, what travels with them, in which tree sums are added, and how memory is
// laid out that ranks share. Such rules have constants that no tag carries: ranks that follow
// others would take one chunk for another, or add in another order. Ends with a zero.
std::string_view build_name();

// At most so long.
inline constexpr std::size_t kLongestBuildName = 47;

}  // namespace plait::comm
