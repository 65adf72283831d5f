// Reads a whole file into memory.
#pragma once

#include <cstddef>
#include <string>

namespace plait::base {

// Error{invalid_argument} or Error{system}, in a sentence with the path, for a file that can't be
// read, has more than `most` bytes, or is not a regular file (a pipe might never have a writer).
std::string read_file(const std::string& path, std::size_t most);

}  // namespace plait::base
