// Where ranks have no core each, their times tell of turns.
#pragma once

#include <string>
#include <string_view>

namespace plait::cli {

// What a reader must know of ranks with so many threads each: nothing where there are cores for
// them, or where the transport may have brought them from other hosts.
std::string show_crowd(int ranks, int threads, std::string_view transport);

}  // namespace plait::cli
