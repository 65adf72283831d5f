#include "launch/environment.h"

#include <algorithm>
#include <array>

namespace plait::launch {
namespace {

using namespace std::string_view_literals;

// Whole names, by launcher. Variables of the allocation (SLURM_JOB_ID, SLURM_CPUS_PER_TASK,
// OMPI_MCA_btl) stay, because programs use them, for instance in names of checkpoints.
constexpr std::array kNames = {
    "PLAIT_RANK"sv, "PLAIT_WORLD_SIZE"sv, "PLAIT_LOCAL_RANK"sv, "PLAIT_LOCAL_WORLD_SIZE"sv,
    "PLAIT_JOB"sv, "PLAIT_PART"sv, "PLAIT_PLACEMENT"sv,
    // torchrun
    "RANK"sv, "WORLD_SIZE"sv, "LOCAL_RANK"sv, "LOCAL_WORLD_SIZE"sv, "GROUP_RANK"sv,
    "GROUP_WORLD_SIZE"sv, "ROLE_RANK"sv, "ROLE_WORLD_SIZE"sv, "ROLE_NAME"sv, "NODE_RANK"sv,
    "MASTER_ADDR"sv, "MASTER_PORT"sv,
    // Open MPI: with these, a child that calls MPI_Init would join its parent's world
    "OMPI_UNIVERSE_SIZE"sv, "OMPI_APP_CTX_NUM_PROCS"sv, "OMPI_FIRST_RANKS"sv, "OMPI_NUM_APP_CTX"sv,
    "OMPI_FILE_LOCATION"sv, "OMPI_COMMAND"sv, "OMPI_ARGV"sv, "OMPI_MCA_initial_wdir"sv,
    // MPICH, Intel MPI, MVAPICH
    "MPI_LOCALRANKID"sv, "MPI_LOCALNRANKS"sv, "HYDI_CONTROL_FD"sv, "MPIRUN_RANK"sv,
    "MPIRUN_NPROCS"sv,
    // Slurm's srun, Flux, Cray
    "SLURM_PROCID"sv, "SLURM_LOCALID"sv, "SLURM_NODEID"sv, "SLURM_NTASKS"sv, "SLURM_NPROCS"sv,
    "SLURM_GTIDS"sv, "SLURM_TASK_PID"sv, "SLURM_STEPID"sv, "FLUX_TASK_RANK"sv,
    "FLUX_TASK_LOCAL_ID"sv, "FLUX_JOB_SIZE"sv, "ALPS_APP_PE"sv};

constexpr std::array kPrefixes = {"TORCHELASTIC_"sv,  "OMPI_COMM_WORLD_"sv,
                                  "OMPI_MCA_orte_"sv, "OMPI_MCA_ess"sv,
                                  "OMPI_MCA_pmix"sv,  "PMIX_"sv,
                                  "PMI_"sv,           "MV2_COMM_WORLD_"sv,
                                  "SLURM_STEP_"sv,    "SLURM_PMI"sv,
                                  "PALS_"sv,          "JSM_NAMESPACE_"sv,
                                  "HOROVOD_RANK"sv,   "HOROVOD_SIZE"sv,
                                  "HOROVOD_LOCAL_"sv, "HOROVOD_CROSS_"sv};

}  // namespace

bool is_placement(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> environment_of(const Place& place, const LocalPlace& local, int threads,
                                        const char* const* inherited) {
  std::vector<std::string> variables;
  bool threads_set = false;
  for (; *inherited != nullptr; ++inherited) {
    const std::string_view variable = *inherited;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (is_placement(name) || (!local.rendezvous.empty() && name == "PLAIT_RENDEZVOUS") ||
        (!local.secret.empty() && name == "PLAIT_SECRET"))
      continue;
    threads_set = threads_set || name == "OMP_NUM_THREADS";
    variables.emplace_back(variable);
  }
  variables.push_back("PLAIT_RANK=" + std::to_string(place.rank));
  variables.push_back("PLAIT_WORLD_SIZE=" + std::to_string(place.world));
  variables.push_back("PLAIT_LOCAL_RANK=" + std::to_string(local.rank));
  variables.push_back("PLAIT_LOCAL_WORLD_SIZE=" + std::to_string(local.world));
  variables.push_back("PLAIT_JOB=" + place.job);
  if (!local.rendezvous.empty()) variables.push_back("PLAIT_RENDEZVOUS=" + local.rendezvous);
  if (!local.hosts.empty()) variables.push_back("PLAIT_PLACEMENT=" + local.hosts);
  if (!local.secret.empty()) variables.push_back("PLAIT_SECRET=" + local.secret);
  if (!threads_set) variables.push_back("OMP_NUM_THREADS=" + std::to_string(threads));
  return variables;
}

}  // namespace plait::launch
