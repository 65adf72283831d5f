// Files in which users set parameters of a library, as lines "NAME = VALUE".
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace plait::comm::mpi {

// The folder of the shared library that has this function; empty: it isn't known.
std::filesystem::path folder_of_library(const void* function);

// True if one of the files sets the parameter. Files that don't exist set nothing.
bool is_set_in_one_of(const std::vector<std::filesystem::path>& files, std::string_view parameter);

}  // namespace plait::comm::mpi
