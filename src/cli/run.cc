// plait run: starts ranks on this host.
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>

#include "base/check.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/host/cgroup.h"
#include "cli/host/topology.h"
#include "cli/launch/find_command.h"
#include "cli/launch/supervisor.h"
#include "cli/options.h"
#include "cli/speech.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostRanks = 1024;

constexpr Options::About kAbout = {
    .verb = "run",
    .usage = "-n N [OPTIONS] [--] CMD [ARGS...]",
    .purpose =
        "Starts N ranks of a command on this host and looks after them until all have ended.\n\n"
        "Each rank finds its place in PLAIT_RANK, PLAIT_WORLD_SIZE, PLAIT_LOCAL_RANK,\n"
        "PLAIT_LOCAL_WORLD_SIZE and PLAIT_JOB; the places that other launchers left are removed.\n"
        "Rank 0 reads standard input, the others read nothing. When a rank fails, the others may\n"
        "notice it and end by themselves for a while, then they are ended. Ctrl-C and signals "
        "reach\n"
        "every rank. No process that a rank has started stays behind.",
    .examples =
        "Exit status: 0 when every rank answered 0; else the status of the first rank that "
        "failed,\n"
        "128 + the signal for one that was killed; 130 after Ctrl-C; 124 at the time limit; 127 "
        "for\n"
        "a command that is not found, 126 for one that cannot be run; 2 for wrong usage.\n\n"
        "Examples:\n"
        "  plait run -n 2 ./my_program              two ranks, half of the cores each\n"
        "  plait run -n 4 -p -- python train.py     each line of output behind its rank, \"[3] \"\n"
        "  plait run -n 8 --bind numa --timeout 2h -- ./my_program --steps 100"};

struct Wishes {
  std::string ranks;
  std::string bind;
  std::string limit;
  std::string grace = "5s";
  std::string linger = "10s";
  bool prefix = false;
  bool verbose = false;
};

void add_options(Options& options, Wishes& wishes) {
  options.add("-n,--ranks", "N", wishes.ranks, "how many ranks to start, 1 to 1024");
  options.add("-b,--bind", "core|numa|none", wishes.bind,
              "core: an equal share of whole cores for each rank (the default, where\n"
              "the cores suffice); numa: a NUMA node for each rank, in turn; none:\n"
              "wherever the system puts them. OMP_NUM_THREADS is set to the rank's\n"
              "share of the cores, unless you have set it");
  options.add_flag("-p,--prefix", wishes.prefix,
                   "begin every line of output with its rank, and keep lines whole");
  options.add("-t,--timeout", "DURATION", wishes.limit,
              "end the run after this long, such as 90s, 30min or 2h (default: never;\n"
              "how long a rank waits for another is PLAIT_TIMEOUT)");
  options.add("--linger", "DURATION", wishes.linger,
              "how long the others may go on when a rank has failed (default: 10s)");
  options.add("--grace", "DURATION", wishes.grace,
              "how long a rank that is told to end may take before it is killed\n"
              "(default: 5s)");
  options.add_flag("-v,--verbose", wishes.verbose, "say where each rank was put");
}

// Where mpirun would be told -np 2, -n would be told p.
void check_habits(Words words) {
  for (const std::string& word : words) {
    PLAIT_CHECK(word != "-np", "unknown option ", word,
                base::did_you_mean(word, std::vector<std::string>{"-n"}));
  }
}

int read_ranks(const std::string& text) {
  PLAIT_CHECK(!text.empty(), "how many ranks? -n N is missing (plait run --help)");
  const auto ranks = base::parse_int(text);
  PLAIT_CHECK(ranks && *ranks >= 1 && *ranks <= kMostRanks, "-n ", text,
              ": the number of ranks is a whole number from 1 to ", kMostRanks);
  return static_cast<int>(*ranks);
}

base::Nanoseconds read_duration(const char* option, const std::string& text) {
  const auto duration = base::parse_duration(text);
  PLAIT_CHECK(duration, option, " ", text, " is not a duration such as 500ms, 90s, 30min or 2h");
  return *duration;
}

Bind read_bind(const std::string& text) {
  if (text == "core") return Bind::core;
  if (text == "numa") return Bind::numa;
  PLAIT_CHECK(text == "none", "--bind ", text, " is none of core, numa and none");
  return Bind::none;
}

std::vector<Seat> read_seats(const Wishes& wishes) {
  const int ranks = read_ranks(wishes.ranks);
  const auto cores = read_topology().cores;
  const auto cpus = read_cgroup_limits().cpus;
  const Bind bind = wishes.bind.empty() ? default_bind(static_cast<int>(cores.size()), ranks, cpus)
                                        : read_bind(wishes.bind);
  return seats_for(bind, ranks, cores, cpus);
}

// Were one of these closed, the next file that we open would be taken for it.
void open_standard_files() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

Launch read_launch(const Wishes& wishes) {
  Launch launch;
  launch.seats = read_seats(wishes);
  launch.prefix = wishes.prefix;
  launch.verbose = wishes.verbose;
  launch.grace = read_duration("--grace", wishes.grace);
  launch.linger = read_duration("--linger", wishes.linger);
  if (!wishes.limit.empty()) {
    launch.limit = read_duration("--timeout", wishes.limit);
    PLAIT_CHECK(launch.limit > 0, "--timeout ", wishes.limit, " leaves no time to run");
  }
  return launch;
}

}  // namespace

int run(Words words) {
  Wishes wishes;
  Options options(kAbout);
  add_options(options, wishes);
  const std::size_t leading = options.leading(words);
  check_habits(words.first(leading));
  if (!options.parse(words.first(leading))) return kDone;
  Launch launch = read_launch(wishes);
  Words command = words.subspan(leading);
  if (!command.empty() && command[0] == "--") command = command.subspan(1);
  PLAIT_CHECK(!command.empty(), "which command? Such as plait run -n 2 -- ./my_program");
  launch.words.assign(command.begin(), command.end());
  open_standard_files();
  const Command found = find_command(command[0]);
  if (found.status != 0) {
    complain("plait run", found.refusal);
    return found.status;
  }
  launch.path = found.path;
  Supervisor supervisor(launch);
  try {
    supervisor.start();
  } catch (const Error& error) {
    complain("plait run", error.what());
    return kCannotRun;
  }
  return supervisor.watch();
}

}  // namespace plait::cli
