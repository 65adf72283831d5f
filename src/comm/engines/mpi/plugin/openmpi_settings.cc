#include <mpi.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/text.h"
#include "comm/engines/mpi/plugin/library_settings.h"
#include "comm/engines/mpi/plugin/settings_files.h"

namespace plait::comm::mpi {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kParameter = "btl_tcp_flags";
constexpr const char* kVariable = "OMPI_MCA_btl_tcp_flags";
constexpr const char* kFile = "openmpi-mca-params.conf";

// Open MPI's defaults without "put". With it, every message of more than 192 KiB waits for requests
// of its receiver, and the link carries little more than half of what it could both ways.
constexpr const char* kWithoutPut = "send,inplace,need-ack,need-csum,hetero-rdma";

// The files of the installation: where variables say, PREFIX/etc for a library in PREFIX/lib, or
// Debian's place.
void add_files_of_installation(std::vector<fs::path>& files) {
  if (const auto folder = base::env("OPAL_SYSCONFDIR")) files.push_back(fs::path(*folder) / kFile);
  if (const auto prefix = base::env("OPAL_PREFIX"))
    files.push_back(fs::path(*prefix) / "etc" / kFile);
  files.push_back(fs::path("/etc/openmpi") / kFile);
  fs::path folder = folder_of_library(reinterpret_cast<const void*>(&MPI_Init_thread));
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    files.push_back(folder / "etc" / kFile);
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

}  // namespace

// A variable counts for more than a file, so it must not be set where a file says what the user
// wants. Ranks of one host don't use this transport, unless the user demands it.
void apply_library_settings(int /*hosts*/) {
  if (!is_set_in_one_of(find_parameter_files(), kParameter)) ::setenv(kVariable, kWithoutPut, 0);
}

}  // namespace plait::comm::mpi
