// The places that launchers give their processes.
#include <gtest/gtest.h>

#include "comm/environment.h"
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
    EXPECT_EQ(error.culprit(), Error::kNobody);
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

TEST(Place, IsAloneWhereNobodySaysOtherwise) {
  const Place place = place_in({});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world, 1);
  EXPECT_EQ(place.hosts, 1);
  EXPECT_EQ(place.launcher, "");
}

TEST(Place, ReadsPlaitRun) {
  const Place place = place_in(kPlaitRun);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world, 3);
  EXPECT_EQ(place.hosts, 1);
  EXPECT_EQ(place.launcher, "plait run");
  EXPECT_EQ(place.job, "plait run/ab12");
}

TEST(Place, ReadsTorchrun) {
  const Place place = place_in(kTorchrun);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world, 8);
  EXPECT_EQ(place.hosts, 2);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_EQ(place.job, "torchrun/node1/29500/none/0");
}

TEST(Place, ReadsOpenMpi) {
  const Place place = place_in(kOpenMpi);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world, 4);
  EXPECT_EQ(place.hosts, 1);
  EXPECT_EQ(place.launcher, "Open MPI");
  EXPECT_EQ(place.job, "Open MPI/1234.1");
}

TEST(Place, ReadsSlurm) {
  const Place place = place_in(kSlurm);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.world, 6);
  EXPECT_EQ(place.hosts, 2);
  EXPECT_EQ(place.launcher, "Slurm");
  EXPECT_EQ(place.job, "Slurm/77/0");
}

TEST(Place, CountsHostsUpwards) {
  EXPECT_EQ(place_in(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "8"}}).hosts, 1);
  EXPECT_EQ(place_in(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "7"}}).hosts, 2);
  EXPECT_EQ(place_in(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "3"}}).hosts, 3);
}

// What a launcher starts is its own job, and every start of it another one.
TEST(Place, TellsStartsApart) {
  const std::string job = place_in(kTorchrun).job;
  for (const char* variable :
       {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    EXPECT_NE(place_in(kTorchrun + Variables{{variable, "other"}}).job, job) << variable;
  }
  EXPECT_EQ(place_in(kTorchrun + Variables{{"RANK", "0"}}).job, job);
  EXPECT_NE(place_in(kSlurm + Variables{{"SLURM_STEP_ID", "1"}}).job, place_in(kSlurm).job);
}

TEST(Place, BelievesTheInnermostLauncher) {
  EXPECT_EQ(place_in(kSlurm + kOpenMpi + kTorchrun + kPlaitRun).launcher, "plait run");
  EXPECT_EQ(place_in(kSlurm + kOpenMpi + kTorchrun).launcher, "torchrun");
  EXPECT_EQ(place_in(kSlurm + kOpenMpi).launcher, "Open MPI");
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

// In a batch script and in the shell of an allocation there is nobody to meet: they have rank and
// world of the whole job, but are no step that srun started.
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
