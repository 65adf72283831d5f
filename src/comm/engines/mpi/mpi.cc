#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/env.h"
#include "comm/core/plugin.h"
#include "comm/engines/mpi/factory.h"

namespace plait::comm::mpi {
namespace {

struct Library {
  PluginFile plugin;
  std::array<const char*, 2> shared;  // the names of the library's own file, or null
};
// Open MPI loads components of its own that look for its symbols.
constexpr Library kOpenMpi = {.plugin = {.name = "libplait_mpi_openmpi.so",
                                         .entry_point = "plait_mpi_plugin",
                                         .global = true},
                              .shared = {"libmpi.so.40", nullptr}};
constexpr Library kMpich = {
    .plugin = {.name = "libplait_mpi_mpich.so", .entry_point = "plait_mpi_plugin", .global = true},
    .shared = {"libmpich.so.12", "libmpi.so.12"}};

bool is_here(const Library& library) {
  return std::any_of(library.shared.begin(), library.shared.end(),
                     [](const char* name) { return name != nullptr && is_loaded(name); });
}

// The library that the launcher speaks to: Open MPI's mpirun by PMIx, MPICH's Hydra by PMI. Slurm
// speaks to both in either way.
const Library& launchers_library() {
  if (base::env("PMIX_RANK") || base::env("OMPI_COMM_WORLD_RANK")) return kOpenMpi;
  return base::env("PMI_RANK") ? kMpich : kOpenMpi;
}

// A process can use one MPI library: the one that it has, or the one that its launcher speaks to.
const Library& library_of_this_process() {
  if (is_here(kOpenMpi)) return kOpenMpi;
  if (is_here(kMpich)) return kMpich;
  const Library& wanted = launchers_library();
  const Library& other = &wanted == &kOpenMpi ? kMpich : kOpenMpi;
  const bool speaks_to_both = base::env("SLURM_PROCID").has_value();
  const bool has_launcher = base::env("PMIX_RANK") || base::env("PMI_RANK");
  if ((speaks_to_both || !has_launcher) && !find_plugin(wanted.plugin) && find_plugin(other.plugin))
    return other;
  return wanted;
}

// It stays loaded, because MPI can't be started twice.
LoadedPlugin load() { return load_plugin(library_of_this_process().plugin); }

}  // namespace

Availability available() { return {load().refusal}; }

Availability supports(const Site& site) {
  if (site.mpi) {
    if (is_here(kOpenMpi) || is_here(kMpich)) return {};
    return {
        "the program's MPI library is no shared library of Open MPI or MPICH, for which the "
        "plugins "
        "are"};
  }
  constexpr std::array kOthers = {"plait run", "torchrun", "torch.distributed"};
  if (std::find(kOthers.begin(), kOthers.end(), site.place.launcher) == kOthers.end()) return {};
  return {
      base::sentence("needs ranks that mpirun, mpiexec or srun started; these have the variables "
                     "of ",
                     site.place.launcher)};
}

std::unique_ptr<Transport> create(const Site& site) {
  const LoadedPlugin loaded = load();
  PLAIT_CHECK(loaded.head != nullptr, "the mpi transport cannot be used: ", loaded.refusal);
  return loaded.plugin()->create(site);
}

}  // namespace plait::comm::mpi
