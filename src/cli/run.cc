// plait run: starts ranks on this host, or on several.
#include <unistd.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>

#include "base/check.h"
#include "base/env.h"
#include "base/nearest.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/console.h"
#include "launch/cgroup.h"
#include "launch/topology.h"
#include "launch/find_command.h"
#include "launch/hosts.h"
#include "launch/supervisor.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostRanks = 1024;
constexpr base::Nanoseconds kForRemoteRuns = 2 * base::kSecond;

constexpr Options::About kAbout = {
    .verb = "run",
    .usage = "-n N | --hosts HOST:N,... [OPTIONS] [--] CMD [ARGS...]",
    .purpose =
        "Starts N ranks of a command on this host, or some on each of several hosts, and\n"
        "supervises them until all have ended.\n\n"
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
        "  plait run -n 8 --bind numa --timeout 2h -- ./my_program --steps 100\n"
        "  plait run --hosts node1:2,node2:2 -- ./my_program    over ssh, or PLAIT_RSH"};

struct Args {
  std::string ranks;
  std::string hosts;
  std::string bind;
  std::string limit;
  std::string grace = "5s";
  std::string linger = "10s";
  bool prefix = false;
  bool verbose = false;
};

void add_options(Options& options, Args& args) {
  options.add("-n,--ranks", "N", args.ranks, "number of ranks to start, 1 to 1024");
  options.add("--hosts", "HOST:N,...", args.hosts,
              "start N ranks on each of these hosts, in place of -n. ssh must reach\n"
              "them without a password, or the command that PLAIT_RSH names, which\n"
              "is called with a host and a line for its shell. The folder, plait\n"
              "and CMD must have the same paths there. Variables PLAIT_..., COC_...\n"
              "and OMP_... are passed on. Ranks meet on the first host, at a port\n"
              "that is chosen unless PLAIT_RENDEZVOUS=HOST:PORT is set");
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

launch::Bind read_bind(const std::string& text) {
  if (text == "core") return launch::Bind::core;
  if (text == "numa") return launch::Bind::numa;
  PLAIT_CHECK(text == "none", "--bind ", text, " is none of core, numa, none");
  return launch::Bind::none;
}

std::vector<launch::CpuBinding> read_bindings(const Args& args) {
  const int ranks = read_ranks(args.ranks);
  const auto cores = launch::read_topology().cores;
  const auto cpus = launch::read_cgroup_limits().cpus;
  const launch::Bind bind = args.bind.empty() ? launch::default_bind(static_cast<int>(cores.size()), ranks, cpus)
                                      : read_bind(args.bind);
  return launch::bindings_for(bind, ranks, cores, cpus);
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

// A port that is free on another host can't be known here; this one probably is.
std::string choose_rendezvous(const std::string& host) {
  if (const auto chosen = base::env("PLAIT_RENDEZVOUS")) return *chosen;
  constexpr unsigned kFirstPort = 29600;
  constexpr unsigned kPorts = 3000;  // below those that the system gives away itself
  std::random_device random;
  return host + ':' + std::to_string(kFirstPort + random() % kPorts);
}

// What the remote runs get on to their words.
std::vector<std::string> options_for_hosts(const Args& args) {
  std::vector<std::string> options = {"--grace", args.grace, "--linger", args.linger};
  if (!args.bind.empty()) options.insert(options.end(), {"--bind", args.bind});
  if (args.prefix) options.emplace_back("--prefix");
  if (args.verbose) options.emplace_back("--verbose");
  return options;
}

void share_out(const Args& args, launch::Launch& launch) {
  PLAIT_CHECK(args.ranks.empty(), "--hosts and -n exclude one another: --hosts node1:2,node2:2");
  launch.hosts = launch::parse_hosts(args.hosts, static_cast<int>(kMostRanks));
  launch::Part part = {.first = 0,
               .world = 0,
               .job = base::random_name(),
               .rendezvous = choose_rendezvous(launch::name_of(launch.hosts[0]))};
  for (const launch::HostShare& share : launch.hosts) part.world += share.ranks;
  for (const launch::HostShare& share : launch.hosts) {
    launch.agents.push_back(launch::agent_words(share, part, options_for_hosts(args), launch.words));
    part.first += share.ranks;
  }
  launch.part.job = part.job;
  // The runs on the hosts have their own patience with the ranks.
  launch.grace = read_duration("--grace", args.grace) + kForRemoteRuns;
}

// Either all ranks, or those of this host where plait run --hosts was called on another.
void take_part(const Args& args, launch::Launch& launch) {
  launch.bindings = read_bindings(args);
  launch.prefix = args.prefix;
  const auto part = launch::part_from_environment();
  launch.ends_with_input = part.has_value();
  launch.part = part ? *part
                     : launch::Part{.first = 0,
                            .world = static_cast<int>(launch.bindings.size()),
                            .job = base::random_name(),
                            .rendezvous = ""};
}

launch::Launch read_launch(const Args& args, Words command) {
  launch::Launch launch;
  launch.words.assign(command.begin(), command.end());
  if (args.hosts.empty()) {
    take_part(args, launch);
  } else {
    share_out(args, launch);
  }
  launch.verbose = args.verbose;
  if (launch.hosts.empty()) launch.grace = read_duration("--grace", args.grace);
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
  Words command = words.subspan(leading);
  if (!command.empty() && command[0] == "--") command = command.subspan(1);
  PLAIT_CHECK(!command.empty(), "the command is missing, as in plait run -n 2 -- ./my_program");
  launch::Launch launch = read_launch(args, command);
  open_standard_files();
  const launch::Command found = launch::find_command(launch.hosts.empty() ? command[0] : launch.agents[0][0]);
  if (found.status != 0) {
    complain("plait run", found.refusal);
    return found.status;
  }
  launch.path = found.path;
  launch::Supervisor supervisor(launch);
  try {
    supervisor.start();
  } catch (const Error& error) {
    complain("plait run", error.what());
    return launch::kCannotRun;
  }
  return supervisor.watch();
}

}  // namespace plait::cli
