#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/env.h"
#include "base/text.h"
#include "comm/mpi/plugin/library_settings.h"

namespace plait::comm::mpi {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kParameter = "btl_tcp_flags";
constexpr const char* kVariable = "OMPI_MCA_btl_tcp_flags";

// Open MPI's defaults without "put". With it, every message of more than 192 KiB waits for requests
// of its receiver, and the link carries little more than half of what it could both ways.
constexpr const char* kWithoutPut = "send,inplace,need-ack,need-csum,hetero-rdma";

// The files of the installation: PREFIX/etc for a library in PREFIX/lib, or Debian's place.
void add_files_of_installation(std::vector<fs::path>& files) {
  files.emplace_back("/etc/openmpi/openmpi-mca-params.conf");
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) == 0) return;
  std::error_code unknown;
  const fs::path library = fs::canonical(info.dli_fname, unknown);
  fs::path folder = library.parent_path();
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    files.push_back(folder / "etc" / "openmpi-mca-params.conf");
  }
}

std::vector<fs::path> find_parameter_files() {
  std::vector<fs::path> files;
  if (const auto given = base::env("OMPI_MCA_mca_base_param_files")) {
    for (const std::string_view file : base::split(*given, ',')) files.emplace_back(file);
    return files;
  }
  if (const auto home = base::env("HOME"))
    files.push_back(fs::path(*home) / ".openmpi" / "mca-params.conf");
  add_files_of_installation(files);
  return files;
}

// Whether a line is "NAME = VALUE" with this name.
bool sets_parameter(std::string_view line) {
  constexpr std::string_view kBlanks = " \t";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  if (!line.starts_with(kParameter)) return false;
  line.remove_prefix(kParameter.size());
  const std::size_t next = line.find_first_not_of(kBlanks);
  return next != line.npos && line[next] == '=';
}

bool is_set_in(const fs::path& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (sets_parameter(line)) return true;
  }
  return false;
}

}  // namespace

// A variable counts for more than a file, so it must not be set where a file says what the user
// wants.
void apply_library_settings() {
  const std::vector<fs::path> files = find_parameter_files();
  if (std::none_of(files.begin(), files.end(), is_set_in)) ::setenv(kVariable, kWithoutPut, 0);
}

}  // namespace plait::comm::mpi
