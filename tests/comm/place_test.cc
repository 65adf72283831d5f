// The places that launchers give their processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ostream>
#include <string>

#include "base/check.h"
#include "comm/engines/mpi/factory.h"
#include "comm/engines/shm/factory.h"
#include "comm/engines/tcp/factory.h"
#include "comm/environment.h"
#include "conformance/ranks.h"
#include "plait/communicator.h"

namespace plait {
namespace {

using Variables = Environment::Variables;

Place place_in(const Variables& variables) {
  const Environment environment(variables);
  return place_from_environment();
}

std::string refusal_in(const Variables& variables) {
  const Environment environment(variables);
  try {
    place_from_environment();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_EQ(error.culprit(), Error::kNoRank);
    return error.what();
  }
  return "taken";
}

Variables operator+(Variables some, const Variables& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

const Variables kPlaitRun = {{"PLAIT_RANK", "1"},
                             {"PLAIT_WORLD_SIZE", "3"},
                             {"PLAIT_LOCAL_RANK", "1"},
                             {"PLAIT_LOCAL_WORLD_SIZE", "3"},
                             {"PLAIT_JOB", "ab12"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "1234.1"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "6"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}};

TEST(Place, SimulatedHostsHaveNames) {
  EXPECT_EQ(place_in(kPlaitRun).host, "");
  EXPECT_EQ(place_in(kPlaitRun + Variables{{"PLAIT_HOST", "b"}}).host, "b");
}

// Every way in which ranks are started, and what comes of it: the place and the transport, or why
// there is none.
struct Row {
  const char* name;
  Variables variables;
  std::string outcome;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }  // NOLINT: gtest's name

class PlaceTable : public testing::TestWithParam<Row> {};

std::string transport_for(const Place& place) {
  if (place.world == 1) return "alone";
  if (comm::shm::supports({.place = place})) return "shm";
  if (comm::tcp::supports({.place = place})) return "tcp";
  return comm::mpi::supports({.place = place}) ? "mpi" : "none";
}

std::string outcome_in(const Variables& variables) {
  const Environment environment(variables);
  try {
    const Place place = place_from_environment();
    return base::sentence(place.launcher, ": ", place.rank, " of ", place.world, ", hosts ",
                          place.hosts, ", local ", place.local_rank, ", ", transport_for(place));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_P(PlaceTable, Holds) { EXPECT_EQ(outcome_in(GetParam().variables), GetParam().outcome); }

const Variables kHydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
// Without a job the ranks of one start are told by their proxy, which a test in a container, whose
// session began outside, may not have.
const Variables kHydraJob = kHydra + Variables{{"PLAIT_JOB", "seven"}};
const Variables kPals = {{"PALS_RANKID", "5"}, {"PALS_APID", "ab"},     {"PMI_RANK", "5"},
                         {"PMI_SIZE", "8"},    {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "4"}};

Variables by_hand(const char* rank, const char* world) {
  return {{"RANK", rank}, {"WORLD_SIZE", world}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "295"}};
}

std::string no_local(const std::string& rank, const std::string& world, const std::string& local) {
  return rank + " and " + world + " are set but not " + local +
         ": set it to the number of ranks on this host, so that it is known whether all are on one";
}

std::string unreadable(const std::string& variable) {
  return variable +
         " is set, by a launcher that plait cannot read: set PLAIT_RANK, PLAIT_WORLD_SIZE, "
         "PLAIT_LOCAL_WORLD_SIZE and PLAIT_JOB for each rank, or PLAIT_RANK=0 and "
         "PLAIT_WORLD_SIZE=1 for a process that is alone";
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, PlaceTable,
    testing::Values(
        Row{"nothing", {}, ": 0 of 1, hosts 1, local 0, alone"},
        Row{"plait_run", kPlaitRun, "plait run: 1 of 3, hosts 1, local 1, shm"},
        Row{"plait_by_hand",
            {{"PLAIT_RANK", "1"}, {"PLAIT_WORLD_SIZE", "2"}, {"PLAIT_JOB", "try"}},
            "plait run: 1 of 2, hosts 1, local 1, shm"},

        Row{"torchrun", kTorchrun, "torchrun: 5 of 8, hosts 2, local 1, tcp"},
        Row{"torchrun_on_one_host", kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "8"}},
            "torchrun: 5 of 8, hosts 1, local 1, shm"},
        Row{"torchrun_on_three_hosts", kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "3"}},
            "torchrun: 5 of 8, hosts 3, local 1, tcp"},
        Row{"torchrun_below_srun", kSlurm + kTorchrun, "torchrun: 5 of 8, hosts 2, local 1, tcp"},
        Row{"plait_run_below_all", kSlurm + kOpenMpi + kTorchrun + kPlaitRun,
            "plait run: 1 of 3, hosts 1, local 1, shm"},
        Row{"torchrun_below_all", kSlurm + kOpenMpi + kTorchrun,
            "torchrun: 5 of 8, hosts 2, local 1, tcp"},

        Row{"mpirun", kOpenMpi, "Open MPI: 2 of 4, hosts 1, local 2, shm"},
        Row{"mpirun_on_two_hosts", kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
            "Open MPI: 2 of 4, hosts 2, local 0, mpi"},
        Row{"mpirun_with_three_ranks_here",
            kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
            "Open MPI: 2 of 4, hosts 2, local 0, mpi"},
        Row{"mpirun_with_one_rank_here", kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
            "Open MPI: 2 of 4, hosts 4, local 0, mpi"},
        Row{"mpirun_that_tells_no_hosts", kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", ""}},
            "Open MPI: 2 of 4, hosts 4, local 0, mpi"},

        Row{"srun", kSlurm, "Slurm: 3 of 6, hosts 2, local 0, mpi"},
        Row{"srun_on_one_host",
            kSlurm + Variables{{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_LOCALID", "3"}},
            "Slurm: 3 of 6, hosts 1, local 3, shm"},
        Row{"srun_that_tells_no_hosts", kSlurm + Variables{{"SLURM_STEP_NUM_NODES", ""}},
            "Slurm: 3 of 6, hosts 6, local 0, mpi"},
        Row{"srun_with_pmi2", kSlurm + Variables{{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}},
            "Slurm: 3 of 6, hosts 2, local 0, mpi"},
        Row{"srun_with_pmix", kSlurm + Variables{{"PMIX_RANK", "3"}},
            "Slurm: 3 of 6, hosts 2, local 0, mpi"},

        // Exported for torch.distributed, by what a cluster's launcher has started.
        Row{"exported_below_srun",
            kSlurm + by_hand("3", "6") + Variables{{"SLURM_LOCALID", "1"}, {"LOCAL_RANK", "0"}},
            "Slurm: 3 of 6, hosts 2, local 1, tcp"},
        Row{"exported_below_srun_on_one_host",
            kSlurm + by_hand("3", "6") + Variables{{"SLURM_STEP_NUM_NODES", "1"}},
            "Slurm: 3 of 6, hosts 1, local 3, shm"},
        Row{"exported_below_mpirun",
            kOpenMpi + by_hand("2", "4") + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
            "Open MPI: 2 of 4, hosts 2, local 0, tcp"},
        Row{"exported_below_hydra", kHydraJob + by_hand("1", "4"),
            "Hydra: 1 of 4, hosts 1, local 1, shm"},
        Row{"half_exported_below_srun", kSlurm + Variables{{"RANK", "3"}},
            "Slurm: 3 of 6, hosts 2, local 0, mpi"},
        Row{"other_ranks_below_srun",
            kSlurm + by_hand("1", "2") + Variables{{"LOCAL_WORLD_SIZE", "2"}},
            "torch.distributed: 1 of 2, hosts 1, local 1, shm"},
        Row{"other_ranks_below_srun_that_tell_no_hosts", kSlurm + by_hand("1", "2"),
            no_local("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")},

        Row{"by_hand", by_hand("1", "2") + Variables{{"LOCAL_WORLD_SIZE", "2"}},
            "torch.distributed: 1 of 2, hosts 1, local 1, shm"},
        Row{"by_hand_on_two_hosts", by_hand("1", "2") + Variables{{"LOCAL_WORLD_SIZE", "1"}},
            "torch.distributed: 1 of 2, hosts 2, local 0, tcp"},
        Row{"by_hand_that_tells_no_hosts", by_hand("1", "2"),
            no_local("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")},
        Row{"by_hand_alone", by_hand("0", "1"),
            "torch.distributed: 0 of 1, hosts 1, local 0, alone"},

        Row{"hydra", kHydraJob, "Hydra: 1 of 4, hosts 1, local 1, shm"},
        Row{"hydra_on_two_hosts", kHydraJob + Variables{{"MPI_LOCALNRANKS", "2"}},
            "Hydra: 1 of 4, hosts 2, local 1, mpi"},
        Row{"hydra_that_tells_no_hosts", kHydraJob + Variables{{"MPI_LOCALNRANKS", ""}},
            no_local("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS")},
        Row{"hydra_whose_proxies_srun_started", kSlurm + kHydraJob,
            "Hydra: 1 of 4, hosts 1, local 1, shm"},

        Row{"pals", kPals, "Cray PALS: 5 of 8, hosts 2, local 1, mpi"},
        Row{"pals_on_one_host", kPals + Variables{{"PMI_LOCAL_SIZE", "8"}},
            "Cray PALS: 5 of 8, hosts 1, local 1, shm"},
        Row{"pals_that_tells_no_hosts", kPals + Variables{{"PMI_LOCAL_SIZE", ""}},
            no_local("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_SIZE")},
        Row{"pals_without_pmi", {{"PALS_RANKID", "5"}}, unreadable("PALS_RANKID")},

        Row{"pmix", {{"PMIX_RANK", "0"}}, unreadable("PMIX_RANK")},
        Row{"mvapich", {{"MV2_COMM_WORLD_RANK", "0"}}, unreadable("MV2_COMM_WORLD_RANK")},
        Row{"jsrun", {{"JSM_NAMESPACE_RANK", "0"}}, unreadable("JSM_NAMESPACE_RANK")},
        Row{"intel_without_pmi", {{"MPI_LOCALRANKID", "0"}}, unreadable("MPI_LOCALRANKID")},
        Row{"pmix_and_plait_by_hand",
            {{"PMIX_RANK", "0"}, {"PLAIT_RANK", "0"}, {"PLAIT_WORLD_SIZE", "1"}},
            "plait run: 0 of 1, hosts 1, local 0, alone"}),
    [](const auto& one) { return std::string(one.param.name); });

// Two starts of mpiexec at the same time have different proxies, the parents of all their ranks.
TEST(Place, KnowsHydrasRanksByTheirProxy) {
  fork_ranks(2, [](int) {
    const pid_t proxy = ::getppid();
    ::setsid();
    EXPECT_EQ(place_in(kHydra).job, "Hydra/proxy " + std::to_string(proxy));
  });
  EXPECT_EQ(place_in(kHydraJob).job, "Hydra/seven");
}

// Each start by a launcher is a job of its own.
TEST(Place, TellsStartsApart) {
  EXPECT_EQ(place_in(kPlaitRun).job, "plait run/ab12");
  EXPECT_EQ(place_in(kOpenMpi).job, "Open MPI/1234.1");
  EXPECT_EQ(place_in(kSlurm).job, "Slurm/77/0");
  const std::string job = place_in(kTorchrun).job;
  EXPECT_EQ(job, "torchrun/node1/29500/none/0");
  for (const char* variable :
       {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    EXPECT_NE(place_in(kTorchrun + Variables{{variable, "other"}}).job, job) << variable;
  }
  EXPECT_EQ(place_in(kTorchrun + Variables{{"RANK", "0"}}).job, job);
  EXPECT_NE(place_in(kSlurm + Variables{{"SLURM_STEP_ID", "1"}}).job, place_in(kSlurm).job);
}

TEST(Place, RefusesHalfAPlace) {
  EXPECT_EQ(refusal_in({{"PLAIT_RANK", "0"}}),
            "PLAIT_RANK is set but PLAIT_WORLD_SIZE is not: how many ranks are there?");
  EXPECT_EQ(refusal_in({{"PLAIT_WORLD_SIZE", "2"}}),
            "PLAIT_WORLD_SIZE is set but PLAIT_RANK is not: which rank is this?");
  EXPECT_EQ(refusal_in({{"RANK", "0"}}),
            "RANK is set but WORLD_SIZE is not: how many ranks are there?");
  EXPECT_EQ(refusal_in({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is set but RANK is not: which rank is this?");
  EXPECT_EQ(
      refusal_in({{"OMPI_COMM_WORLD_RANK", "0"}}),
      "OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not: how many ranks are there?");
  // Not filled up from another launcher's.
  EXPECT_EQ(refusal_in(kTorchrun + Variables{{"PLAIT_RANK", "0"}}),
            "PLAIT_RANK is set but PLAIT_WORLD_SIZE is not: how many ranks are there?");
}

// A batch script and the shell of an allocation have no peers to meet: they have rank and world of
// the whole job, but are no step that srun started.
TEST(Place, IsAloneInASlurmShell) {
  const Variables batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "1"}};
  EXPECT_EQ(place_in(batch).world, 1);
  for (const char* step : {"batch", "interactive", "4294967291", "4294967290", "-5", ""}) {
    EXPECT_EQ(place_in(batch + Variables{{"SLURM_STEP_ID", step}}).world, 1) << step;
  }
  EXPECT_EQ(place_in(batch + Variables{{"SLURM_STEP_ID", "12"}}).world, 2);
  EXPECT_EQ(place_in({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}}).world, 1);
  EXPECT_EQ(place_in({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}}).world, 1);
}

TEST(Place, TakesEmptyForUnset) {
  EXPECT_EQ(place_in({{"RANK", ""}, {"WORLD_SIZE", ""}}).world, 1);
  EXPECT_EQ(place_in(kTorchrun + Variables{{"PLAIT_RANK", ""}}).launcher, "torchrun");
}

TEST(Place, RefusesWhatIsNoPlace) {
  const auto with_rank = [](const char* rank) {
    return refusal_in({{"PLAIT_RANK", rank}, {"PLAIT_WORLD_SIZE", "3"}});
  };
  for (const char* rank : {"3", "-1", "one", "1.0", " 1", "1 ", "0x1", "99999999999999999999"}) {
    EXPECT_EQ(with_rank(rank),
              std::string("PLAIT_RANK=") + rank + " is not a whole number from 0 to 2");
  }
  for (const char* world : {"0", "-2", "65537", "two"}) {
    EXPECT_EQ(refusal_in({{"PLAIT_RANK", "0"}, {"PLAIT_WORLD_SIZE", world}}),
              std::string("PLAIT_WORLD_SIZE=") + world + " is not a whole number from 1 to 65536");
  }
  EXPECT_EQ(refusal_in(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "0"}}),
            "LOCAL_WORLD_SIZE=0 is not a whole number from 1 to 65536");
}

}  // namespace
}  // namespace plait
