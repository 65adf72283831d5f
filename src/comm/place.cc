#include "plait/communicator.h"

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"
#include "comm/transport.h"

namespace plait {
namespace {

// How a launcher tells its processes where they stand. Rank and world must both be there.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* hosts;  // number of hosts, or null
  const char* step;   // the start's number, or null: the launcher starts nothing but ranks
  const char* local_rank;
  const char* local_world;         // ranks on this host, or null
  std::array<const char*, 4> job;  // what together names this start, as far as set
};

// plait run first: it starts ranks below whatever started it.
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"plait run",
     "PLAIT_RANK",
     "PLAIT_WORLD_SIZE",
     nullptr,
     nullptr,
     "PLAIT_LOCAL_RANK",
     "PLAIT_LOCAL_WORLD_SIZE",
     {"PLAIT_JOB"}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     nullptr,
     nullptr,
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     nullptr,
     nullptr,
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_STEP_NUM_NODES",
     "SLURM_STEP_ID",
     "SLURM_LOCALID",
     nullptr,
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
}};

using comm::kMostRanks;

int count_hosts(const Launcher& launcher, int world) {
  if (launcher.hosts != nullptr) {
    return static_cast<int>(base::env_int(launcher.hosts, 1, kMostRanks).value_or(1));
  }
  const auto local = base::env_int(launcher.local_world, 1, kMostRanks).value_or(world);
  return static_cast<int>((world + local - 1) / local);
}

// Slurm gives rank and world to a batch script and to an allocation's shell too, which are one
// process with nobody to meet. What srun starts is a step with a number; theirs is not set, or,
// with other Slurms, is a name or one of the highest numbers of 32 bits.
bool has_started_this(const Launcher& launcher) {
  constexpr std::int64_t kSpecialSteps = 0xfffffff0;
  if (launcher.step == nullptr) return true;
  const auto text = base::env(launcher.step);
  const auto step = text ? base::parse_int(*text) : std::nullopt;
  return step && *step >= 0 && *step < kSpecialSteps;
}

Place place_from(const Launcher& launcher) {
  const auto world = base::env_int(launcher.world, 1, kMostRanks);
  PLAIT_CHECK(world, launcher.rank, " is set but ", launcher.world,
              " is not: how many ranks are there?");
  const auto rank = base::env_int(launcher.rank, 0, *world - 1);
  PLAIT_CHECK(rank, launcher.world, " is set but ", launcher.rank, " is not: which rank is this?");
  Place place = {
      .rank = static_cast<int>(*rank), .world = static_cast<int>(*world), .job = launcher.name};
  place.launcher = launcher.name;
  place.hosts = count_hosts(launcher, place.world);
  place.local_rank = static_cast<int>(base::env_int(launcher.local_rank, 0, kMostRanks)
                                          .value_or(place.hosts == 1 ? place.rank : 0));
  for (const char* variable : launcher.job) {
    if (variable == nullptr) continue;
    if (const auto text = base::env(variable)) place.job += '/' + *text;
  }
  PLAIT_CHECK(place.world == 1 || place.job != launcher.name, launcher.rank, " and ",
              launcher.world, " are set but not ", launcher.job[0],
              ", by which ranks of one start know each other");
  return place;
}

}  // namespace

Place place_from_environment() {
  for (const Launcher& launcher : kLaunchers) {
    if (!has_started_this(launcher)) continue;
    if (base::env(launcher.rank) || base::env(launcher.world)) return place_from(launcher);
  }
  return {.rank = 0, .world = 1, .job = "alone"};
}

}  // namespace plait
