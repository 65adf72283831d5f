#include <dlfcn.h>
#include <cerrno>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "comm/build_name.h"
#include "comm/mpi/factory.h"
#include "comm/mpi/plugin.h"

namespace plait::comm::mpi {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libplait_mpi_openmpi.so";

// Where plugins may lie: PLAIT_PLUGIN_PATH, or else beside the binary that holds this code: in its
// plait/, or in lib/plait/ of one of the three folders above (an install prefix, a build tree).
std::vector<fs::path> plugin_folders() {
  if (const auto path = base::env("PLAIT_PLUGIN_PATH")) return {*path};
  std::vector<fs::path> folders;
  Dl_info self = {};
  std::error_code failure;
  // Any address of this binary will do.
  if (::dladdr(reinterpret_cast<const void*>(&plugin_folders), &self) == 0) return folders;
  // For the program itself, dladdr() only knows the word by which it was started.
  const bool is_program = std::string_view(self.dli_fname) == program_invocation_name;
  const char* const binary = is_program ? "/proc/self/exe" : self.dli_fname;
  fs::path folder = fs::canonical(binary, failure).parent_path();
  if (failure) return folders;
  folders.push_back(folder / "plait");
  for (int up = 0; up < 3; ++up, folder = folder.parent_path())
    folders.push_back(folder / "lib" / "plait");
  return folders;
}

struct Loaded {
  const Plugin* plugin = nullptr;
  std::string refusal = {};
};

// The library stays loaded until the process ends: MPI can't be started twice.
Loaded load() {
  for (const fs::path& folder : plugin_folders()) {
    const fs::path file = folder / kFile;
    std::error_code failure;
    if (!fs::exists(file, failure)) continue;
    // RTLD_GLOBAL: Open MPI loads components of its own that look for its symbols.
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library == nullptr)
      return {.refusal = base::sentence("its plugin does not load: ", ::dlerror())};
    const auto entry = reinterpret_cast<EntryPoint>(::dlsym(library, kEntryPoint));
    if (entry == nullptr)
      return {.refusal = base::sentence(file.string(), " is no plugin of plait")};
    const Plugin* plugin = entry();
    if (plugin->build != build_name()) {
      return {.refusal = base::sentence("its plugin is of plait ", plugin->build, ", this is ",
                                        build_name())};
    }
    return {.plugin = plugin};
  }
  const auto path = base::env("PLAIT_PLUGIN_PATH");
  return {.refusal =
              path ? base::sentence("its plugin ", kFile, " is not in PLAIT_PLUGIN_PATH, ", *path)
                   : base::sentence("its plugin ", kFile,
                                    " is not in lib/plait/ beside this "
                                    "program or library; PLAIT_PLUGIN_PATH can name its folder")};
}

}  // namespace

Availability available() { return {load().refusal}; }

Availability supports(const Site& site) {
  constexpr std::array kOthers = {"plait run", "torchrun", "torch.distributed", "Hydra",
                                  "Cray PALS"};
  if (std::find(kOthers.begin(), kOthers.end(), site.place.launcher) == kOthers.end()) return {};
  return {base::sentence("needs ranks that Open MPI's mpirun or srun started; ",
                         site.place.launcher, " started these")};
}

std::unique_ptr<Transport> create(const Site& site) {
  const Loaded loaded = load();
  PLAIT_CHECK(loaded.plugin != nullptr, "the mpi transport cannot be used: ", loaded.refusal);
  return loaded.plugin->create(site);
}

}  // namespace plait::comm::mpi
