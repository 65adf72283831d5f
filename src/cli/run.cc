// plait run: starts ranks on this host.
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>

#include "base/check.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/host/cgroup.h"
#include "cli/host/topology.h"
#include "cli/launch/find_command.h"
#include "cli/launch/supervisor.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostRanks = 1024;

constexpr Options::About kAbout = {
    .verb = "run",
    .usage = "-n N [OPTIONS] [--] CMD [ARGS...]",
    .purpose =
        "Starts N ranks of a command on this host and supervises them until all have ended.\n\n"
        "Each rank finds its place in PLAIT_RANK, PLAIT_WORLD_SIZE, PLAIT_LOCAL_RANK,\n"
        "PLAIT_LOCAL_WORLD_SIZE and PLAIT_JOB; variables of other launchers are removed. Rank 0\n"
        "reads standard input; the others get an empty one. When a rank fails, the others may end\n"
        "by themselves for a while (--linger); then they are ended. Ctrl-C and signals reach "
        "every\n"
        "rank. Every process that a rank has started is ended too.",
    .examples =
        "Exit status: 0 when every rank returned 0; otherwise the status of the first rank that\n"
        "failed, or 128 + the signal that killed it; 130 after Ctrl-C; 124 at the time limit; 127 "
        "for\n"
        "a command that is not found, 126 for one that can't be run; 2 for wrong usage.\n\n"
        "Examples:\n"
        "  plait run -n 2 ./my_program              two ranks with half of the cores each\n"
        "  plait run -n 4 -p -- python train.py     each line of output after its rank, \"[3] \"\n"
        "  plait run -n 8 --bind numa --timeout 2h -- ./my_program --steps 100"};

struct Args {
  std::string ranks;
  std::string bind;
  std::string limit;
  std::string grace = "5s";
  std::string linger = "10s";
  bool prefix = false;
  bool verbose = false;
};

void add_options(Options& options, Args& args) {
  options.add("-n,--ranks", "N", args.ranks, "number of ranks to start, 1 to 1024");
  options.add("-b,--bind", "core|numa|none", args.bind,
              "core: give each rank an equal share of whole cores (default, if there\n"
              "are enough cores); numa: give each rank a NUMA node, in turn; none:\n"
              "leave placement to the system. Sets OMP_NUM_THREADS to the rank's\n"
              "share of the cores, unless it is set");
  options.add_flag("-p,--prefix", args.prefix,
                   "print the rank before every line of output, and keep lines whole");
  options.add("-t,--timeout", "DURATION", args.limit,
              "end the run after this time, such as 90s, 30min or 2h (default:\n"
              "never; PLAIT_TIMEOUT limits how long a rank waits for another)");
  options.add("--linger", "DURATION", args.linger,
              "time for the other ranks to end after a rank has failed\n(default: 10s)");
  options.add("--grace", "DURATION", args.grace,
              "time for a rank to end after it was told to, before it is killed\n"
              "(default: 5s)");
  options.add_flag("-v,--verbose", args.verbose, "print the processors of each rank");
}

// Refuses mpirun's -np 2, which would otherwise be read as -n p.
void check_habits(Words words) {
  for (const std::string& word : words) {
    PLAIT_CHECK(word != "-np", "unknown option ", word,
                base::did_you_mean(word, std::vector<std::string>{"-n"}));
  }
}

int read_ranks(const std::string& text) {
  PLAIT_CHECK(!text.empty(), "the number of ranks is missing: -n N (plait run --help)");
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
  PLAIT_CHECK(text == "none", "--bind ", text, " is none of core, numa, none");
  return Bind::none;
}

std::vector<CpuBinding> read_bindings(const Args& args) {
  const int ranks = read_ranks(args.ranks);
  const auto cores = read_topology().cores;
  const auto cpus = read_cgroup_limits().cpus;
  const Bind bind = args.bind.empty() ? default_bind(static_cast<int>(cores.size()), ranks, cpus)
                                      : read_bind(args.bind);
  return bindings_for(bind, ranks, cores, cpus);
}

// Opens closed standard descriptors, because the next file opened would otherwise get the number of
// one.
void open_standard_files() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

Launch read_launch(const Args& args) {
  Launch launch;
  launch.bindings = read_bindings(args);
  launch.prefix = args.prefix;
  launch.verbose = args.verbose;
  launch.grace = read_duration("--grace", args.grace);
  launch.linger = read_duration("--linger", args.linger);
  if (!args.limit.empty()) {
    launch.limit = read_duration("--timeout", args.limit);
    PLAIT_CHECK(launch.limit > 0, "--timeout ", args.limit, " is not above 0");
  }
  return launch;
}

}  // namespace

int run(Words words) {
  Args args;
  Options options(kAbout);
  add_options(options, args);
  const std::size_t leading = options.leading(words);
  check_habits(words.first(leading));
  if (!options.parse(words.first(leading))) return kDone;
  Launch launch = read_launch(args);
  Words command = words.subspan(leading);
  if (!command.empty() && command[0] == "--") command = command.subspan(1);
  PLAIT_CHECK(!command.empty(), "the command is missing, as in plait run -n 2 -- ./my_program");
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
