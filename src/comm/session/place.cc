#include "plait/communicator.h"

#include <unistd.h>

#include <array>
#include <string>

#include "base/check.h"
#include "base/env.h"
#include "base/process.h"
#include "base/text.h"
#include "comm/core/transport.h"

namespace plait {
namespace {

// How a launcher tells its processes where they stand. Rank and world must both be there.
struct Launcher {
  const char* name;
  const char* only_with = nullptr;  // the launcher sets it too; null: nothing else is needed
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world = nullptr;  // ranks on this host, or null
  const char* hosts = nullptr;        // number of hosts, or null
  const char* step = nullptr;         // the start's number, or null: it starts nothing but ranks
  std::array<const char*, 4> job;     // variables that together name this start, as far as set
  bool has_sessions = false;  // each rank has one of its own, whose leader a proxy has started
  enum class Unsaid { one_host, several_hosts, refused } unsaid;  // used if no variable tells hosts
};

constexpr Launcher kPlaitRun = {.name = "plait run",
                                .rank = "PLAIT_RANK",
                                .world = "PLAIT_WORLD_SIZE",
                                .local_rank = "PLAIT_LOCAL_RANK",
                                .local_world = "PLAIT_LOCAL_WORLD_SIZE",
                                .job = {"PLAIT_JOB"},
                                .unsaid = Launcher::Unsaid::one_host};

constexpr Launcher kTorchrun = {
    .name = "torchrun",
    .only_with = "TORCHELASTIC_RUN_ID",
    .rank = "RANK",
    .world = "WORLD_SIZE",
    .local_rank = "LOCAL_RANK",
    .local_world = "LOCAL_WORLD_SIZE",
    .job = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    .unsaid = Launcher::Unsaid::refused};

// mpiexec of MPICH and Intel MPI. A start has one proxy on each host.
constexpr Launcher kHydra = {.name = "Hydra",
                             .rank = "PMI_RANK",
                             .world = "PMI_SIZE",
                             .local_rank = "MPI_LOCALRANKID",
                             .local_world = "MPI_LOCALNRANKS",
                             .job = {"PLAIT_JOB"},
                             .has_sessions = true,
                             .unsaid = Launcher::Unsaid::refused};

// Those whose ranks a script often tells its rank and world once more, for torch.distributed.
constexpr std::array<Launcher, 4> kClusterLaunchers = {
    {{.name = "Open MPI",
      .rank = "OMPI_COMM_WORLD_RANK",
      .world = "OMPI_COMM_WORLD_SIZE",
      .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
      .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
      .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
      .unsaid = Launcher::Unsaid::several_hosts},
     {.name = "Cray PALS",
      .only_with = "PALS_RANKID",
      .rank = "PMI_RANK",
      .world = "PMI_SIZE",
      .local_rank = "PMI_LOCAL_RANK",
      .local_world = "PMI_LOCAL_SIZE",
      .job = {"PALS_APID", "PLAIT_JOB"},
      .unsaid = Launcher::Unsaid::refused},
     {.name = "Slurm",
      .rank = "SLURM_PROCID",
      .world = "SLURM_NTASKS",
      .local_rank = "SLURM_LOCALID",
      .hosts = "SLURM_STEP_NUM_NODES",
      .step = "SLURM_STEP_ID",
      .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
      .unsaid = Launcher::Unsaid::several_hosts},
     kHydra}};

// Exported by hand, or by what starts ranks of torch.distributed without torchrun.
constexpr Launcher kByHand = {.name = "torch.distributed",
                              .rank = "RANK",
                              .world = "WORLD_SIZE",
                              .local_rank = "LOCAL_RANK",
                              .local_world = "LOCAL_WORLD_SIZE",
                              .job = {"MASTER_ADDR", "MASTER_PORT"},
                              .unsaid = Launcher::Unsaid::refused};

// Set by launchers that tell too little, or that plait doesn't know.
constexpr std::array kRanksOfOthers = {"PMIX_RANK", "PALS_RANKID", "MV2_COMM_WORLD_RANK",
                                       "JSM_NAMESPACE_RANK", "MPI_LOCALRANKID"};

using comm::kMostRanks;

// If the launcher says neither, the result is the most hosts that its ranks could be on.
int count_hosts(const Launcher& launcher, int world) {
  if (launcher.hosts != nullptr) {
    if (const auto hosts = base::env_int(launcher.hosts, 1, kMostRanks))
      return static_cast<int>(*hosts);
  }
  if (launcher.local_world != nullptr) {
    if (const auto local = base::env_int(launcher.local_world, 1, kMostRanks))
      return static_cast<int>((world + *local - 1) / *local);
  }
  if (launcher.unsaid == Launcher::Unsaid::one_host) return 1;
  PLAIT_CHECK(launcher.unsaid == Launcher::Unsaid::several_hosts || world == 1, launcher.rank,
              " and ", launcher.world, " are set but not ", launcher.local_world,
              ": set it to the number of ranks on this host, so that it is known whether all are "
              "on one");
  return world;
}

// Slurm gives rank and world to a batch script and to an allocation's shell too, which are one
// process without peers. What srun starts is a step with a number; the others' number is not set,
// or, with other Slurms, is a name or one of the highest numbers of 32 bits.
bool is_step(const char* variable) {
  constexpr std::int64_t kSpecialSteps = 0xfffffff0;
  const auto text = base::env(variable);
  const auto step = text ? base::parse_int(*text) : std::nullopt;
  return step && *step >= 0 && *step < kSpecialSteps;
}

bool is_said(const Launcher& launcher) {
  return base::env(launcher.rank) || base::env(launcher.world);
}

bool has_started_this(const Launcher& launcher) {
  if (launcher.only_with != nullptr && !base::env(launcher.only_with)) return false;
  if (launcher.step != nullptr && !is_step(launcher.step)) return false;
  return is_said(launcher);
}

// True if the variables of both say the same place.
bool agrees(const Launcher& launcher, const Launcher& other) {
  const auto same = [](const char* one, const char* another) {
    const auto text = base::env(another);
    return !text || base::env(one) == text;
  };
  return same(launcher.rank, other.rank) && same(launcher.world, other.world);
}

std::string job_of(const Launcher& launcher, int world) {
  std::string job = launcher.name;
  for (const char* variable : launcher.job) {
    if (variable == nullptr) continue;
    if (const auto text = base::env(variable)) job += '/' + *text;
  }
  if (job == launcher.name && launcher.has_sessions) {
    if (const pid_t proxy = base::parent_of(::getsid(0))) job += base::sentence("/proxy ", proxy);
  }
  PLAIT_CHECK(world == 1 || job != launcher.name, launcher.rank, " and ", launcher.world,
              " are set but not ", launcher.job[0],
              ", by which ranks of one start know each other");
  return job;
}

Place place_from(const Launcher& launcher) {
  const auto world = base::env_int(launcher.world, 1, kMostRanks);
  PLAIT_CHECK(world, launcher.rank, " is set but ", launcher.world,
              " is not: how many ranks are there?");
  const auto rank = base::env_int(launcher.rank, 0, *world - 1);
  PLAIT_CHECK(rank, launcher.world, " is set but ", launcher.rank, " is not: which rank is this?");
  Place place = {.rank = static_cast<int>(*rank), .world = static_cast<int>(*world)};
  place.launcher = launcher.name;
  place.job = job_of(launcher, place.world);
  place.hosts = count_hosts(launcher, place.world);
  place.host = base::env("PLAIT_HOST").value_or("");
  place.local_rank = static_cast<int>(base::env_int(launcher.local_rank, 0, kMostRanks)
                                          .value_or(place.hosts == 1 ? place.rank : 0));
  return place;
}

// A process of another launcher that counted as a world of one would return its part of a result.
void refuse_other_launchers() {
  for (const char* variable : kRanksOfOthers) {
    PLAIT_CHECK(!base::env(variable), variable, " is set, by a launcher that plait cannot read: ",
                "set PLAIT_RANK, PLAIT_WORLD_SIZE, PLAIT_LOCAL_WORLD_SIZE and PLAIT_JOB for each "
                "rank, or PLAIT_RANK=0 and PLAIT_WORLD_SIZE=1 for a process that is alone");
  }
}

}  // namespace

// plait run first: it starts ranks below whatever started it. Rank and world that were exported by
// hand below a cluster's launcher say the same as that launcher, which knows the hosts as well; or
// else the ranks are others, which its processes have started.
Place place_from_environment() {
  for (const Launcher* launcher : {&kPlaitRun, &kTorchrun}) {
    if (has_started_this(*launcher)) return place_from(*launcher);
  }
  for (const Launcher& launcher : kClusterLaunchers) {
    // Hydra's proxies may be what Slurm has started.
    const bool is_it = has_started_this(launcher) && agrees(launcher, kByHand) &&
                       (launcher.step == nullptr || agrees(launcher, kHydra));
    if (is_it) return place_from(launcher);
  }
  if (has_started_this(kByHand)) return place_from(kByHand);
  refuse_other_launchers();
  return {.rank = 0, .world = 1, .job = "alone"};
}

}  // namespace plait
