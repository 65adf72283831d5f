#include <dlfcn.h>
#include <cerrno>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "comm/build_name.h"
#include "comm/mpi/factory.h"
#include "comm/mpi/plugin.h"

namespace plait::comm::mpi {
namespace {

namespace fs = std::filesystem;

struct Library {
  const char* plugin;
  std::array<const char*, 2> shared;  // the names of the library's own file, or null
};
constexpr Library kOpenMpi = {.plugin = "libplait_mpi_openmpi.so",
                              .shared = {"libmpi.so.40", nullptr}};
constexpr Library kMpich = {.plugin = "libplait_mpi_mpich.so",
                            .shared = {"libmpich.so.12", "libmpi.so.12"}};

bool is_loaded(const Library& library) {
  return std::any_of(library.shared.begin(), library.shared.end(), [](const char* name) {
    void* handle = name == nullptr ? nullptr : ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
  });
}

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

std::optional<fs::path> plugin_of(const Library& library) {
  for (const fs::path& folder : plugin_folders()) {
    std::error_code failure;
    if (fs::exists(folder / library.plugin, failure)) return folder / library.plugin;
  }
  return std::nullopt;
}

// The library that the launcher speaks to: Open MPI's mpirun by PMIx, MPICH's Hydra by PMI. Slurm
// speaks to both in either way.
const Library& launchers_library() {
  if (base::env("PMIX_RANK") || base::env("OMPI_COMM_WORLD_RANK")) return kOpenMpi;
  return base::env("PMI_RANK") ? kMpich : kOpenMpi;
}

// A process can use one MPI library: the one that it has, or the one that its launcher speaks to.
const Library& library_of_this_process() {
  if (is_loaded(kOpenMpi)) return kOpenMpi;
  if (is_loaded(kMpich)) return kMpich;
  const Library& wanted = launchers_library();
  const Library& other = &wanted == &kOpenMpi ? kMpich : kOpenMpi;
  const bool speaks_to_both = base::env("SLURM_PROCID").has_value();
  const bool has_launcher = base::env("PMIX_RANK") || base::env("PMI_RANK");
  if ((speaks_to_both || !has_launcher) && !plugin_of(wanted) && plugin_of(other)) return other;
  return wanted;
}

struct Loaded {
  const Plugin* plugin = nullptr;
  std::string refusal = {};
};

// The library stays loaded until the process ends: MPI can't be started twice.
Loaded load() {
  const Library& library = library_of_this_process();
  const auto file = plugin_of(library);
  if (!file) {
    const auto path = base::env("PLAIT_PLUGIN_PATH");
    return {.refusal = path ? base::sentence("its plugin ", library.plugin,
                                             " is not in PLAIT_PLUGIN_PATH, ", *path)
                            : base::sentence("its plugin ", library.plugin,
                                             " is not in lib/plait/ beside this program or "
                                             "library; PLAIT_PLUGIN_PATH can name its folder")};
  }
  // RTLD_GLOBAL: Open MPI loads components of its own that look for its symbols.
  void* plugin_file = ::dlopen(file->c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (plugin_file == nullptr)
    return {.refusal = base::sentence("its plugin does not load: ", ::dlerror())};
  const auto entry = reinterpret_cast<EntryPoint>(::dlsym(plugin_file, kEntryPoint));
  if (entry == nullptr)
    return {.refusal = base::sentence(file->string(), " is no plugin of plait")};
  const Plugin* plugin = entry();
  if (plugin->build != build_name()) {
    return {.refusal = base::sentence("its plugin is of plait ", plugin->build, ", this is ",
                                      build_name())};
  }
  return {.plugin = plugin};
}

}  // namespace

Availability available() { return {load().refusal}; }

Availability supports(const Site& site) {
  constexpr std::array kOthers = {"plait run", "torchrun", "torch.distributed"};
  if (std::find(kOthers.begin(), kOthers.end(), site.place.launcher) == kOthers.end()) return {};
  return {base::sentence("needs ranks that mpirun, mpiexec or srun started; ", site.place.launcher,
                         " started these")};
}

std::unique_ptr<Transport> create(const Site& site) {
  const Loaded loaded = load();
  PLAIT_CHECK(loaded.plugin != nullptr, "the mpi transport cannot be used: ", loaded.refusal);
  return loaded.plugin->create(site);
}

}  // namespace plait::comm::mpi
