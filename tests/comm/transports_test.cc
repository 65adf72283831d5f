// Which transport is chosen, and what is said where none can be.
#include "comm/session/transports.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/environment.h"
#include "plait/communicator.h"
#include "plait/error.h"

namespace plait::comm {
namespace {

namespace fs = std::filesystem;

Site site_of(int world, int hosts = 1, const std::string& launcher = "") {
  return {.place = {.rank = 0, .world = world, .job = "job", .launcher = launcher, .hosts = hosts}};
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_EQ(error.culprit(), Error::kNoRank);
    return error.what();
  }
  return "taken";
}

std::string refusal_to_select(const std::string& name, const Site& site) {
  return refusal([&] { select_transport(name, site); });
}

// A folder of plugins that goes with the test.
class Plugins {
 public:
  Plugins() : path_(fs::temp_directory_path() / ("plait-plugins-" + std::to_string(::getpid()))) {
    fs::create_directory(path_);
  }
  Plugins(const Plugins&) = delete;
  Plugins& operator=(const Plugins&) = delete;
  ~Plugins() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  fs::path file() const { return path_ / "libplait_mpi_openmpi.so"; }

 private:
  fs::path path_;
};

TEST(Transports, TheBestThatCanIsChosen) {
  EXPECT_STREQ(select_transport("", site_of(1)).name, "threads");
  EXPECT_STREQ(select_transport("", site_of(2)).name, "shm");
  EXPECT_STREQ(select_transport("shm", site_of(1)).name, "shm");
}

// plait info --why shows the walk by which connect() chooses.
TEST(Transports, TheWalkEndsAtTheChosenOrShowsAll) {
  const auto names = [](const std::vector<Candidate>& steps) {
    std::string all;
    for (const Candidate& step : steps) {
      all += std::string(all.empty() ? "" : " ") + step.entry->name + (step.chosen ? "!" : "") +
             (step.answer ? "" : "-") + (step.wanted ? "" : "?");
    }
    return all;
  };
  const Environment environment(Environment::Variables{{"PLAIT_PLUGIN_PATH", "/nonexistent"}});
  EXPECT_EQ(names(walk_transports("", site_of(1), Candidates::until_chosen)), "threads!");
  EXPECT_EQ(names(walk_transports("", site_of(2), Candidates::until_chosen)), "threads- shm!");
  EXPECT_EQ(names(walk_transports("shm", site_of(2), Candidates::until_chosen)), "shm!");
  EXPECT_EQ(names(walk_transports("", site_of(1), Candidates::all)), "threads! shm tcp- mpi- ucx-");
  EXPECT_EQ(names(walk_transports("shm", site_of(1), Candidates::all)),
            "threads? shm! tcp-? mpi-? ucx-?");
  EXPECT_EQ(names(walk_transports("mpi", site_of(2), Candidates::all)),
            "threads-? shm? tcp-? mpi- ucx-?");
  EXPECT_EQ(names(walk_transports("nccl", site_of(2), Candidates::until_chosen)), "");
}

TEST(Transports, RefusesAnUnknownName) {
  EXPECT_EQ(refusal_to_select("nccl", site_of(2)),
            "there is no transport \"nccl\"; there are threads, shm, tcp, mpi, ucx");
  EXPECT_EQ(refusal_to_select("SHM", site_of(2)),
            "there is no transport \"SHM\"; there are threads, shm, tcp, mpi, ucx");
}

TEST(Transports, SuggestTheNameThatWasProbablyMeant) {
  EXPECT_EQ(refusal([] { check_transport("treads"); }),
            "there is no transport treads; did you mean threads?");
  EXPECT_EQ(refusal([] { check_transport("foo"); }),
            "there is no transport foo; there are threads, shm, tcp, mpi, ucx");
  EXPECT_NO_THROW(check_transport(""));
  EXPECT_NO_THROW(check_transport("threads"));
}

TEST(Transports, ConnectTakesTheNameFromTheEnvironmentUnlessTheCallerHasOne) {
  const Environment environment(Environment::Variables{{"PLAIT_TRANSPORT", "smoke-signals"}});
  EXPECT_EQ(refusal([] { Communicator::connect(); }),
            "there is no transport \"smoke-signals\"; there are threads, shm, tcp, mpi, ucx");
  EXPECT_EQ(Communicator::connect({.transport = "shm"}).transport(), "shm");
}

TEST(Transports, ThreadsCannotJoinProcesses) {
  const Environment environment({{"PLAIT_RANK", "0"},
                                 {"PLAIT_WORLD_SIZE", "2"},
                                 {"PLAIT_JOB", "a"},
                                 {"PLAIT_TRANSPORT", "threads"}});
  EXPECT_EQ(refusal([] { Communicator::connect(); }),
            "no transport for rank 0 of 2: threads: joins threads of one process (run_in_threads, "
            "ThreadGroup), not processes");
}

TEST(Transports, ShmJoinsOneHostOnly) {
  EXPECT_EQ(
      refusal_to_select("shm", site_of(4, 2)),
      "no transport for rank 0 of 4: shm: shares the memory of one host; these ranks are on 2");
}

TEST(Transports, ShmJoinsNoSimulatedHosts) {
  Site site = site_of(4);
  site.place.host = "b";
  EXPECT_EQ(refusal_to_select("shm", site),
            "no transport for rank 0 of 4: shm: shares the memory of one host; PLAIT_HOST=b "
            "simulates several");
}

TEST(Transports, AMissingPluginIsNamed) {
  const Environment environment(Environment::Variables{{"PLAIT_PLUGIN_PATH", "/nonexistent"}});
  EXPECT_EQ(refusal_to_select("mpi", site_of(2)),
            "no transport for rank 0 of 2: mpi: its plugin libplait_mpi_openmpi.so is not in "
            "PLAIT_PLUGIN_PATH, /nonexistent");
  EXPECT_STREQ(select_transport("", site_of(2)).name, "shm");
}

TEST(Transports, EveryRefusalIsToldWhereNoneCan) {
  const Environment environment(Environment::Variables{{"PLAIT_PLUGIN_PATH", "/nonexistent"}});
  EXPECT_EQ(refusal_to_select("", site_of(4, 2, "torchrun")),
            "no transport for rank 0 of 4: "
            "threads: joins threads of one process (run_in_threads, ThreadGroup), not processes; "
            "shm: shares the memory of one host; these ranks are on 2; "
            "tcp: needs to know where rank 0 is: MASTER_ADDR and MASTER_PORT, as torchrun sets "
            "them, or PLAIT_RENDEZVOUS=HOST:PORT; "
            "mpi: its plugin libplait_mpi_openmpi.so is not in "
            "PLAIT_PLUGIN_PATH, /nonexistent; "
            "ucx: its plugin libplait_ucx.so is not in PLAIT_PLUGIN_PATH, /nonexistent");
}

TEST(Transports, ACorruptPluginIsRefused) {
  const Plugins plugins;
  const Environment environment(Environment::Variables{{"PLAIT_PLUGIN_PATH", plugins.path()}});
  std::ofstream(plugins.file()) << "this is no library";
  const std::string said = refusal_to_select("mpi", site_of(2));
  EXPECT_TRUE(said.starts_with("no transport for rank 0 of 2: mpi: its plugin does not load: "))
      << said;
  EXPECT_NE(said.find(plugins.file().string()), std::string::npos) << said;
  std::ofstream(plugins.file()) << "";  // a copy that was cut off
  EXPECT_TRUE(refusal_to_select("mpi", site_of(2))
                  .starts_with("no transport for rank 0 of 2: mpi: its plugin does not load: "));
}

TEST(Transports, ALibraryThatIsNoPluginIsRefused) {
  const Plugins plugins;
  const Environment environment(Environment::Variables{{"PLAIT_PLUGIN_PATH", plugins.path()}});
  // Any library will do: one that this process has loaded already.
  std::ifstream maps("/proc/self/maps");
  std::string library;
  for (std::string line; std::getline(maps, line);) {
    const auto at = line.find('/');
    if (at != std::string::npos && line.find("/libm.so") != std::string::npos)
      library = line.substr(at);
  }
  ASSERT_FALSE(library.empty());
  fs::copy_file(library, plugins.file());
  EXPECT_EQ(
      refusal_to_select("mpi", site_of(2)),
      "no transport for rank 0 of 2: mpi: " + plugins.file().string() + " is no plugin of plait");
}

// Hydra and Slurm's PMI-2 tell MPICH's ranks who they are, mpirun and Slurm's PMIx Open MPI's.
TEST(Transports, MpiIsTheLibraryThatTheLauncherSpeaksTo) {
  const Plugins plugins;
  const auto wanted = [&](Environment::Variables variables) {
    variables.emplace_back("PLAIT_PLUGIN_PATH", plugins.path());
    const Environment environment(variables);
    return refusal_to_select("mpi", site_of(2));
  };
  const auto missing = [&](const char* plugin) {
    return std::string("no transport for rank 0 of 2: mpi: its plugin ") + plugin +
           " is not in PLAIT_PLUGIN_PATH, " + plugins.path();
  };
  EXPECT_EQ(wanted({{"PMI_RANK", "0"}}), missing("libplait_mpi_mpich.so"));
  EXPECT_EQ(wanted({{"PMI_RANK", "0"}, {"PMIX_RANK", "0"}}), missing("libplait_mpi_openmpi.so"));
  EXPECT_EQ(wanted({{"OMPI_COMM_WORLD_RANK", "0"}}), missing("libplait_mpi_openmpi.so"));
  EXPECT_EQ(wanted({}), missing("libplait_mpi_openmpi.so"));
  std::ofstream(fs::path(plugins.path()) / "libplait_mpi_mpich.so") << "no library";
  const auto takes_mpich = [&](const Environment::Variables& variables) {
    return wanted(variables).find("its plugin does not load") != std::string::npos;
  };
  EXPECT_TRUE(takes_mpich({}));
  EXPECT_TRUE(takes_mpich({{"PMIX_RANK", "0"}, {"SLURM_PROCID", "0"}}));  // Slurm speaks to both
  EXPECT_FALSE(takes_mpich({{"PMIX_RANK", "0"}}));
}

TEST(Transports, MpiIsNotForRanksThatOthersStarted) {
  for (const auto& entry : transports()) {
    if (std::string(entry.name) != "mpi") continue;
    EXPECT_EQ(
        entry.supports(site_of(2, 1, "plait run")).refusal,
        "needs ranks that mpirun, mpiexec or srun started; these have the variables of plait run");
    EXPECT_TRUE(entry.supports(site_of(2, 1, "Hydra")));
    EXPECT_TRUE(entry.supports(site_of(2, 1, "Open MPI")));
    EXPECT_TRUE(entry.supports(site_of(2, 1, "Slurm")));
  }
}

TEST(Connect, RefusesARankThatIsNone) {
  const auto connect_as = [](int rank, int world) {
    return refusal([&] {
      Communicator::connect(
          {.transport = "shm", .place = Place{.rank = rank, .world = world, .job = "job"}});
    });
  };
  EXPECT_EQ(connect_as(2, 2), "connect: there is no rank 2 in a world of 2");
  EXPECT_EQ(connect_as(-1, 2), "connect: there is no rank -1 in a world of 2");
  EXPECT_EQ(connect_as(0, 0), "connect: there is no rank 0 in a world of 0");
  EXPECT_EQ(connect_as(0, -3), "connect: there is no rank 0 in a world of -3");
  EXPECT_EQ(connect_as(0, 2'000'000'000),
            "connect: a world of 2000000000 ranks; no more than 65536 can meet");
}

TEST(ThreadGroup, RefusesARankThatIsNone) {
  EXPECT_EQ(refusal([] { ThreadGroup(0); }), "a group of 0 threads; at least one is needed");
  const ThreadGroup group(2);
  EXPECT_EQ(refusal([&] { group.join(2); }), "join: there is no rank 2 in a world of 2");
  EXPECT_EQ(refusal([&] { group.join(-1); }), "join: there is no rank -1 in a world of 2");
  EXPECT_EQ(refusal([] { ThreadGroup(65537); }),
            "a group of 65537 threads; no more than 65536 can meet");
}

TEST(ThreadGroup, MeetsByNoOtherTransport) {
  const auto sentence = [](const std::string& transport) {
    return "join: the ranks of a ThreadGroup meet by the threads transport, not \"" + transport +
           '"';
  };
  const auto run_by = [](const std::string& transport) {
    return refusal([&] { run_in_threads(2, [](Communicator&) {}, {.transport = transport}); });
  };
  EXPECT_EQ(run_by("foo"), sentence("foo"));
  EXPECT_EQ(run_by("shm"), sentence("shm"));
  EXPECT_EQ(run_by("threads"), "taken");
  EXPECT_EQ(refusal([] { ThreadGroup(1).join(0, {.transport = "mpi"}); }), sentence("mpi"));
}

TEST(ThreadGroup, TakesARankOnce) {
  const ThreadGroup group(2);
  const CommunicatorOptions hasty = {.timeout = std::chrono::milliseconds(50)};
  EXPECT_THROW(group.join(0, hasty), Error);
  EXPECT_EQ(refusal([&] { group.join(0, hasty); }),
            "join: rank 0 of 2 has joined and left before; a group that failed or was left needs a "
            "new one");
  const ThreadGroup alone(1);
  const Communicator first = alone.join(0);
  EXPECT_EQ(refusal([&] { alone.join(0); }), "join: two threads claim rank 0 of 1");
}

}  // namespace
}  // namespace plait::comm
