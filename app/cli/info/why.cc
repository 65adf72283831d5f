#include "cli/info/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "base/env.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/info/walk.h"
#include "cli/values.h"
#include "comm/session/transports.h"

namespace plait::cli {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kMostRanks = 65536;

// Keys that describe an operator, besides its name.
constexpr std::array kOperatorKeys = {"op"sv,       "operator"sv, "layer"sv,
                                      "schedule"sv, "plan"sv,     "wire"sv};

struct Problem {
  Place place;
  std::string transport;  // the requested one; empty: the best
};

int read_count(std::string_view word, std::string_view value) {
  const auto count = base::parse_int(value);
  PLAIT_CHECK(count && *count >= 1 && *count <= kMostRanks, "--why ", word,
              " is not a whole number from 1 to ", kMostRanks);
  return static_cast<int>(*count);
}

// Accepts the names that place_from_environment() uses, and those that people type.
std::string read_launcher(std::string_view word, std::string_view value) {
  using Names = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Names, 9> kLaunchers = {{{"run", "plait run"},
                                                {"plait run", "plait run"},
                                                {"torchrun", "torchrun"},
                                                {"mpirun", "Open MPI"},
                                                {"Open MPI", "Open MPI"},
                                                {"srun", "Slurm"},
                                                {"Slurm", "Slurm"},
                                                {"hydra", "Hydra"},
                                                {"Hydra", "Hydra"}}};
  for (const auto& [typed, name] : kLaunchers) {
    if (value == typed) return std::string(name);
  }
  base::fail(Code::invalid_argument, "--why ", word,
             " is none of run, torchrun, mpirun, srun, hydra");
}

void read_word(const std::string& word, Problem& problem) {
  const auto equals = word.find('=');
  const std::string key = key_of(word);
  PLAIT_CHECK(std::find(kOperatorKeys.begin(), kOperatorKeys.end(), key) == kOperatorKeys.end() &&
                  !key.starts_with("matmul") && !key.ends_with("matmul"),
              "--why ", word,
              ": to ask for the plan of an operator, write op=NAME m=M n=N k=K, such as "
              "op=matmul-all-reduce");
  const std::vector<std::string> keys = {"ranks", "hosts", "launcher", "transport"};
  PLAIT_CHECK(std::find(keys.begin(), keys.end(), key) != keys.end(), "--why ", word,
              ": a problem consists of ranks=N, hosts=N, launcher=NAME and transport=NAME, or of "
              "a product's m=, n= and k=",
              base::did_you_mean(key, keys));
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  PLAIT_CHECK(!value.empty(), "--why ", word, " has no value; write ", key, "=...");
  if (key == "ranks") problem.place.world = read_count(word, value);
  if (key == "hosts") problem.place.hosts = read_count(word, value);
  if (key == "launcher") problem.place.launcher = read_launcher(word, value);
  if (key == "transport") problem.transport = value;
}

Problem parse_problem(const std::vector<std::string>& words) {
  Problem problem = {.place = place_from_environment(),
                     .transport = base::env("PLAIT_TRANSPORT").value_or("")};
  for (const std::string& word : words) read_word(word, problem);
  Place& place = problem.place;
  // Assume a launcher that could have started them, if none is given.
  if (place.launcher.empty() && place.world > 1)
    place.launcher = place.hosts > 1 ? "Open MPI" : "plait run";
  place.rank = std::min(place.rank, place.world - 1);
  PLAIT_CHECK(place.hosts <= place.world, "--why: ", base::show_count(place.world, "rank"),
              " cannot run on ", place.hosts, " hosts");
  comm::check_transport(problem.transport);
  return problem;
}

// The ways by which ranks reach each other; empty if the transport's name says it.
std::string ways_of(const Problem& problem, const std::string& transport) {
  const Place& place = problem.place;
  if (transport != "tcp" || place.world == 1) return "";
  if (place.hosts == 1 && place.host.empty())
    return "Although all ranks are on one host, they reach each other over TCP.";
  if (place.hosts == place.world) return "Each rank is on a host of its own.";
  return "Ranks of one host reach each other through shared memory if they can map it, others over "
         "TCP.";
}

}  // namespace

Json explain_transport(const std::vector<std::string>& words) {
  const Problem problem = parse_problem(words);
  Walk walk(problem.transport);
  for (const comm::Candidate& candidate :
       comm::walk_transports(problem.transport, {.place = problem.place}, comm::Candidates::all))
    walk.add({{"name", candidate.entry->name}}, candidate.answer.refusal, candidate.chosen);
  return {{"problem",
           {{"ranks", problem.place.world},
            {"hosts", problem.place.hosts},
            {"launcher", or_null(problem.place.launcher)},
            {"transport", or_null(problem.transport)}}},
          {"chosen", or_null(walk.chosen())},
          {"ways", or_null(ways_of(problem, walk.chosen()))},
          {"walk", walk.steps()}};
}

std::string show_transport(const Json& explained) {
  const Json& problem = explained["problem"];
  const std::string launcher = or_empty(problem["launcher"]);
  const std::string requested = or_empty(problem["transport"]);
  const std::string chosen = or_empty(explained["chosen"]);
  const std::string ways = or_empty(explained["ways"]);
  return fmt::format(
      "The transport for {} on {}{}{}\n\n{}\n{}{}",
      base::show_count(problem["ranks"].get<int>(), "rank"),
      base::show_count(problem["hosts"].get<int>(), "host"),
      launcher.empty() ? "" : ", started by " + launcher,
      requested.empty() ? "" : ", requested: " + requested, show_steps(explained["walk"]),
      chosen.empty() ? "None can be used, so connect() will fail.\n" : "It is " + chosen + ".\n",
      ways.empty() ? "" : ways + '\n');
}

}  // namespace plait::cli
