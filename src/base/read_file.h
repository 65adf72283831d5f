// A whole file, as people write them.
#pragma once

#include <cstddef>
#include <string>

namespace plait::base {

// Refuses, in a sentence with the path, what can't be read, what is longer than `most` bytes, and
// what is no regular file: nobody may ever write to a pipe.
std::string read_file(const std::string& path, std::size_t most);

}  // namespace plait::base
