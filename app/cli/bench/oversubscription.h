// Warns about ranks that share cores: their times include waiting for the core.
#pragma once

#include <string>
#include <string_view>

namespace plait::cli {

// A warning for ranks with so many threads each. Empty if there are enough cores, or if the
// transport may have brought ranks from other hosts.
std::string show_oversubscription(int ranks, int threads, std::string_view transport);

}  // namespace plait::cli
