#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/env.h"
#include "comm/engines/mpi/plugin/library_settings.h"
#include "comm/engines/mpi/plugin/settings_files.h"

namespace plait::comm::mpi {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "UCX_RNDV_THRESH";
constexpr const char* kFile = "ucx.conf";

// InfiniBand and RoCE cards, as the kernel lists them.
bool has_rdma_card() {
  std::error_code missing;
  const fs::directory_iterator cards("/sys/class/infiniband", missing);
  return !missing && cards != fs::directory_iterator();
}

// The files in which UCX looks for values of its variables.
std::vector<fs::path> find_files_of_ucx() {
  std::vector<fs::path> files = {fs::path("/etc/ucx") / kFile, kFile};
  if (const auto home = base::env("HOME")) files.push_back(fs::path(*home) / kFile);
  if (const auto folder = base::env("UCX_CONFIG_DIR")) files.push_back(fs::path(*folder) / kFile);
  void* const ucs = ::dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (ucs == nullptr) return files;
  const fs::path prefix = folder_of_library(::dlsym(ucs, "ucs_init")).parent_path();
  files.push_back(prefix / "etc" / kFile);
  files.push_back(prefix / "etc" / "ucx" / kFile);
  ::dlclose(ucs);
  return files;
}

}  // namespace

// MPICH's UCX by default asks the receiver of a large message first, and then puts the message into
// its memory. Over TCP the link then carries little more than half of what it could both ways. UCX
// has one threshold for all networks, and asking first is best for RDMA and within a host, where it
// saves a copy. So the threshold is left where there is a card for RDMA, or one host only.
void apply_library_settings(int hosts) {
  if (hosts < 2 || has_rdma_card() || is_set_in_one_of(find_files_of_ucx(), kVariable)) return;
  ::setenv(kVariable, "inf", 0);
}

}  // namespace plait::comm::mpi
