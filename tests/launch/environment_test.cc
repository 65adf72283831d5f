#include "launch/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace plait::launch {
namespace {

TEST(Environment, KnowsPlacesFromAllocations) {
  for (const char* name :
       {"RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE",
        "PMI_FD", "MPI_LOCALRANKID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
        "OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid", "PLAIT_JOB"})
    EXPECT_TRUE(is_placement(name)) << name;
  for (const char* name : {"RANKS", "MY_RANK", "PATH", "OMPI_MCA_btl", "SLURM_JOB_ID",
                           "SLURM_CPUS_PER_TASK", "PLAIT_TIMEOUT", "PMIX", ""})
    EXPECT_FALSE(is_placement(name)) << name;
}

TEST(Environment, HasThePlaceOnceAndKeepsTheRest) {
  const std::array<const char*, 5> inherited = {"A=1", "PLAIT_RANK=7", "RANK=7", "B=x=y", nullptr};
  const auto variables = environment_of({.rank = 2, .world = 3, .job = "j"},
                                        {.rank = 2, .world = 3}, 4, inherited.data());
  const std::vector<std::string> expected = {"A=1",
                                             "B=x=y",
                                             "PLAIT_RANK=2",
                                             "PLAIT_WORLD_SIZE=3",
                                             "PLAIT_LOCAL_RANK=2",
                                             "PLAIT_LOCAL_WORLD_SIZE=3",
                                             "PLAIT_JOB=j",
                                             "OMP_NUM_THREADS=4"};
  EXPECT_EQ(variables, expected);
}

TEST(Environment, NamesTheMeetingOfSeveralHosts) {
  const std::array<const char*, 4> inherited = {"PLAIT_RENDEZVOUS=old:1", "PLAIT_SECRET=old",
                                                "PLAIT_PLACEMENT=old:4", nullptr};
  const auto variables = environment_of({.rank = 3, .world = 4, .job = "j"},
                                        {.rank = 1,
                                         .world = 2,
                                         .rendezvous = "node1:29600",
                                         .hosts = "node1:2,node2:2",
                                         .secret = "new"},
                                        4, inherited.data());
  const std::vector<std::string> expected = {"PLAIT_RANK=3",
                                             "PLAIT_WORLD_SIZE=4",
                                             "PLAIT_LOCAL_RANK=1",
                                             "PLAIT_LOCAL_WORLD_SIZE=2",
                                             "PLAIT_JOB=j",
                                             "PLAIT_RENDEZVOUS=node1:29600",
                                             "PLAIT_PLACEMENT=node1:2,node2:2",
                                             "PLAIT_SECRET=new",
                                             "OMP_NUM_THREADS=4"};
  EXPECT_EQ(variables, expected);
}

}  // namespace
}  // namespace plait::launch
