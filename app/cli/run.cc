// plait run: starts ranks on this host, or on several.
#include <unistd.h>

#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>

#include "base/check.h"
#include "base/env.h"
#include "base/nearest.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/verbs.h"
#include "comm/control/ports.h"
#include "comm/session/transports.h"
#include "launch/cgroup.h"
#include "launch/find_command.h"
#include "launch/hosts.h"
#include "launch/supervisor.h"
#include "launch/topology.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostRanks = 1024;

constexpr Options::About kAbout = {
    .verb = "run",
    .usage = "-n N | --hosts HOST:N,... [OPTIONS] [--] CMD [ARGS...]",
    .purpose =
        "Starts N ranks of a command on this host, or some on each of several hosts, and\n"
        "supervises them until all have ended.\n\n"
        "Each rank finds its place in PLAIT_RANK, PLAIT_WORLD_SIZE, PLAIT_LOCAL_RANK,\n"
        "PLAIT_LOCAL_WORLD_SIZE and PLAIT_JOB; variables of other launchers are removed. Rank 0\n"
        "reads standard input; the others get an empty one. When a rank fails, the others may end\n"
        "by themselves for a while (--linger); then they are ended. Ctrl-C and signals reach\n"
        "every rank. Every process that a rank has started is ended too.",
    .examples =
        "Exit status: 0 when every rank returned 0; otherwise the status of the first rank that\n"
        "failed, or 128 + the signal that killed it; 130 after Ctrl-C; 124 at the time limit; 127\n"
        "for a command that is not found, 126 for one that can't be run; 2 for wrong usage.\n"
        "3 means that a rank was lost, so the status of a rank that fails otherwise replaces "
        "it.\n\n"
        "Examples:\n"
        "  plait run -n 2 ./my_program              two ranks with half of the cores each\n"
        "  plait run -n 4 -p -- python train.py     each line of output after its rank, \"[3] \"\n"
        "  plait run -n 8 --bind numa --timeout 2h -- ./my_program --steps 100\n"
        "  plait run --hosts node1:2,node2:2 -- ./my_program    over ssh, or PLAIT_RSH"};

struct Args {
  std::optional<int> ranks;
  std::string hosts;
  std::optional<launch::Bind> bind;
  base::Nanoseconds limit = 0;
  base::Nanoseconds grace = 5 * base::kSecond;
  base::Nanoseconds linger = 10 * base::kSecond;
  bool prefix = false;
  bool verbose = false;
};

int read_ranks(std::string_view, const std::string& text) {
  const auto ranks = base::parse_int(text);
  PLAIT_CHECK(ranks && *ranks >= 1 && *ranks <= kMostRanks, "-n ", text,
              ": the number of ranks is a whole number from 1 to ", kMostRanks);
  return static_cast<int>(*ranks);
}

base::Nanoseconds read_duration(std::string_view option, const std::string& text) {
  const auto duration = base::parse_duration(text);
  PLAIT_CHECK(duration, option, " ", text, " is not a duration such as ",
              base::kExamplesOfDurations);
  return *duration;
}

base::Nanoseconds read_limit(std::string_view option, const std::string& text) {
  const base::Nanoseconds limit = read_duration(option, text);
  PLAIT_CHECK(limit > 0, option, " ", text, " is not above 0");
  return limit;
}

launch::Bind read_bind(std::string_view option, const std::string& text) {
  if (text == "core") return launch::Bind::core;
  if (text == "numa") return launch::Bind::numa;
  PLAIT_CHECK(text == "none", option, " ", text, " is none of core, numa, none");
  return launch::Bind::none;
}

void add_options(Options& options, Args& args) {
  options.add("-n,--ranks", "N", args.ranks, read_ranks, "number of ranks to start, 1 to 1024");
  options.add("--hosts", "HOST:N,...", args.hosts,
              "start N ranks on each of these hosts, in place of -n. ssh must reach\n"
              "them without a password, or the command that PLAIT_RSH names, which\n"
              "is called with a host and a line for its shell, and must pass on its\n"
              "standard input at once. The folder, plait and CMD must have the same\n"
              "paths there. Variables PLAIT_..., COC_..., OMP_... and UCX_... are\n"
              "passed on, PLAIT_SECRET without being shown to other users; if it\n"
              "isn't set, a random one is made. Ranks meet on the first host, at a\n"
              "random port of PLAIT_PORTS or 29600-32599, unless\n"
              "PLAIT_RENDEZVOUS=HOST:PORT is set");
  options.add("--bind|-b", "core|numa|none", args.bind, read_bind,
              "core: give each rank an equal share of whole cores (default, if there\n"
              "are enough cores); numa: give each rank a NUMA node, in turn; none:\n"
              "leave placement to the system. Sets OMP_NUM_THREADS to the rank's\n"
              "share of the cores, unless it is set");
  options.add_flag("-p,--prefix", args.prefix,
                   "print the rank before every line of output, and keep lines whole");
  options.add("--timeout|-t", "DURATION", args.limit, read_limit,
              "end the run after this time, such as 90s, 30min or 2h (default:\n"
              "never; PLAIT_TIMEOUT limits how long a rank waits for another)");
  options.add("--linger", "DURATION", args.linger, read_duration,
              "time for the other ranks to end after a rank has failed\n(default: 10s)");
  options.add("--grace", "DURATION", args.grace, read_duration,
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

std::vector<launch::CpuBinding> read_bindings(const Args& args) {
  PLAIT_CHECK(args.ranks, "the number of ranks is missing: -n N (plait run --help)");
  const auto cores = launch::read_topology().cores;
  const auto cpus = launch::read_cgroup_limits().cpus;
  const launch::Bind bind =
      args.bind.value_or(launch::default_bind(static_cast<int>(cores.size()), *args.ranks, cpus));
  return launch::bindings_for(bind, *args.ranks, cores, cpus);
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
  // below those that the system gives away itself
  constexpr comm::tcp::PortRange kPorts = {.first = 29600, .last = 32599};
  const auto ports = comm::tcp::ports_from_environment().value_or(kPorts);
  std::random_device random;
  return base::sentence(host, ':', std::uniform_int_distribution(ports.first, ports.last)(random));
}

// The options that the remote runs get too.
std::vector<std::string> options_for_hosts(const Options& options) {
  std::vector<std::string> words;
  for (const char* option : {"--grace", "--linger", "--bind"})
    if (options.is_given(option)) words.insert(words.end(), {option, options.typed(option)});
  for (const char* flag : {"--prefix", "--verbose"})
    if (options.is_given(flag)) words.emplace_back(flag);
  return words;
}

// Each host's own run gives its ranks places and processors, and knows of no other run there.
void refuse_repeated_hosts(const Args& args, const std::vector<launch::HostShare>& hosts) {
  std::set<std::string> names;
  for (const launch::HostShare& share : hosts) {
    PLAIT_CHECK(names.insert(launch::name_of(share)).second, "--hosts ", args.hosts, " names ",
                launch::name_of(share), " twice: give it all of its ranks in one place");
  }
}

void share_out(const Args& args, const Options& options, launch::Launch& launch) {
  PLAIT_CHECK(!args.ranks, "--hosts and -n cannot be combined: --hosts node1:2,node2:2");
  launch.hosts = launch::parse_hosts(args.hosts, static_cast<int>(kMostRanks));
  refuse_repeated_hosts(args, launch.hosts);
  launch::RunPart part = {.first = 0,
                          .world = 0,
                          .job = base::random_name(),
                          .rendezvous = choose_rendezvous(launch::name_of(launch.hosts[0]))};
  const std::vector<std::string> words = options_for_hosts(options);
  for (const launch::HostShare& share : launch.hosts) {
    part.world += share.ranks;
    part.hosts +=
        base::sentence(part.hosts.empty() ? "" : ",", launch::name_of(share), ':', share.ranks);
  }
  for (const launch::HostShare& share : launch.hosts) {
    launch.agents.push_back(launch::agent_words(share, part, words, launch.words));
    part.first += share.ranks;
  }
  launch.part.job = part.job;
  launch.part.secret = launch::choose_secret();
}

// Ranks of this host need no place to meet, except over the transports between hosts.
std::string choose_rendezvous_here() {
  const std::string transport = base::env("PLAIT_TRANSPORT").value_or("");
  return comm::meets(transport, comm::Meets::at_address) ? choose_rendezvous("127.0.0.1") : "";
}

// Either all ranks, or those of this host where plait run --hosts was called on another.
void take_part(const Args& args, launch::Launch& launch) {
  launch.bindings = read_bindings(args);
  launch.prefix = args.prefix;
  const auto part = launch::part_from_environment();
  launch.has_caller = part.has_value();
  launch.part = part ? *part
                     : launch::RunPart{.first = 0,
                                       .world = static_cast<int>(launch.bindings.size()),
                                       .job = base::random_name(),
                                       .rendezvous = choose_rendezvous_here()};
  if (part) launch.part.secret = launch::read_secret(STDIN_FILENO);
}

launch::Launch read_launch(const Args& args, const Options& options, Words command) {
  launch::Launch launch;
  launch.words.assign(command.begin(), command.end());
  if (args.hosts.empty()) {
    take_part(args, launch);
  } else {
    share_out(args, options, launch);
  }
  launch.verbose = args.verbose;
  launch.grace = args.grace;
  launch.linger = args.linger;
  launch.limit = args.limit;
  return launch;
}

}  // namespace

int run(Words words) { return run_for("plait run", words); }

int run_for(const std::string& speaker, Words words) {
  Args args;
  Options options(kAbout);
  add_options(options, args);
  const std::size_t leading = options.leading(words);
  check_habits(words.first(leading));
  if (!options.parse(words.first(leading))) return kDone;
  Words command = words.subspan(leading);
  if (!command.empty() && command[0] == "--") command = command.subspan(1);
  PLAIT_CHECK(!command.empty(), "the command is missing, as in plait run -n 2 -- ./my_program");
  launch::Launch launch = read_launch(args, options, command);
  launch.speaker = speaker;
  launch.is_for_verb = speaker != "plait run";
  open_standard_files();
  const launch::Command found =
      launch::find_command(launch.hosts.empty() ? command[0] : launch.agents[0][0]);
  if (found.status != 0) {
    complain(speaker, found.refusal);
    return found.status;
  }
  launch.path = found.path;
  launch::Supervisor supervisor(launch);
  try {
    supervisor.start();
  } catch (const Error& error) {
    complain(speaker, error.what());
    return launch::kCannotRun;
  }
  return supervisor.watch();
}

}  // namespace plait::cli
