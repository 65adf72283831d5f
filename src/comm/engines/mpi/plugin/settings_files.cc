#include "comm/engines/mpi/plugin/settings_files.h"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

namespace plait::comm::mpi {
namespace {

namespace fs = std::filesystem;

bool sets(std::string_view line, std::string_view parameter) {
  constexpr std::string_view kBlanks = " \t";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  if (!line.starts_with(parameter)) return false;
  line.remove_prefix(parameter.size());
  const std::size_t next = line.find_first_not_of(kBlanks);
  return next != line.npos && line[next] == '=';
}

bool is_set_in(const fs::path& file, std::string_view parameter) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (sets(line, parameter)) return true;
  }
  return false;
}

}  // namespace

fs::path folder_of_library(const void* function) {
  Dl_info info = {};
  if (function == nullptr || ::dladdr(function, &info) == 0) return {};
  std::error_code unknown;
  return fs::canonical(info.dli_fname, unknown).parent_path();
}

bool is_set_in_one_of(const std::vector<fs::path>& files, std::string_view parameter) {
  return std::any_of(files.begin(), files.end(),
                     [&](const fs::path& file) { return is_set_in(file, parameter); });
}

}  // namespace plait::comm::mpi
