#include "cli/info/why.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "base/env.h"
#include "base/text.h"
#include "cli/info/show.h"
#include "cli/launch/words.h"
#include "cli/nearest.h"
#include "comm/transports.h"

namespace plait::cli {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kMostRanks = 65536;

// What describes a matrix product, for the day on which one can be asked about.
constexpr std::array kProductKeys = {"m"sv,       "n"sv,        "k"sv,     "dtype"sv, "weight"sv,
                                     "backend"sv, "schedule"sv, "wire"sv,  "op"sv,    "operator"sv,
                                     "gemm"sv,    "matmul"sv,   "layer"sv, "plan"sv};

int read_count(std::string_view word, std::string_view value) {
  const auto count = base::parse_int(value);
  PLAIT_CHECK(count && *count >= 1 && *count <= kMostRanks, "--why ", word,
              " is not a whole number from 1 to ", kMostRanks);
  return static_cast<int>(*count);
}

// By the names under which place_from_environment() knows them, or those one types.
std::string read_launcher(std::string_view word, std::string_view value) {
  using Names = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Names, 7> kLaunchers = {{{"run", "plait run"},
                                                {"plait run", "plait run"},
                                                {"torchrun", "torchrun"},
                                                {"mpirun", "Open MPI"},
                                                {"Open MPI", "Open MPI"},
                                                {"srun", "Slurm"},
                                                {"Slurm", "Slurm"}}};
  for (const auto& [typed, name] : kLaunchers) {
    if (value == typed) return std::string(name);
  }
  base::fail(Code::invalid_argument, "--why ", word,
             " is no launcher that plait knows: run, torchrun, mpirun or srun");
}

void read_word(const std::string& word, Problem& problem) {
  const auto equals = word.find('=');
  const std::string key = word.substr(0, equals);
  PLAIT_CHECK(std::find(kProductKeys.begin(), kProductKeys.end(), key) == kProductKeys.end() &&
                  !key.starts_with("matmul") && !key.ends_with("matmul"),
              "--why ", word, ": ", kNoBackend);
  const std::vector<std::string> keys = {"ranks", "hosts", "launcher", "transport"};
  PLAIT_CHECK(std::find(keys.begin(), keys.end(), key) != keys.end(), "--why ", word,
              ": a problem is made of ranks=N, hosts=N, launcher=NAME and transport=NAME",
              did_you_mean(key, keys));
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  PLAIT_CHECK(!value.empty(), "--why ", word, " lacks its value, as in ", key, "=...");
  if (key == "ranks") problem.place.world = read_count(word, value);
  if (key == "hosts") problem.place.hosts = read_count(word, value);
  if (key == "launcher") problem.place.launcher = read_launcher(word, value);
  if (key == "transport") problem.transport = value;
}

void check_transport(const std::string& name) {
  std::vector<std::string> names;
  for (const comm::TransportEntry& entry : comm::transports()) names.emplace_back(entry.name);
  PLAIT_CHECK(name.empty() || std::find(names.begin(), names.end(), name) != names.end(),
              "there is no transport ", name, did_you_mean(name, names));
}

}  // namespace

Problem parse_problem(Words words) {
  Problem problem = {.place = place_from_environment(),
                     .transport = base::env("PLAIT_TRANSPORT").value_or("")};
  for (const std::string& joined : words) {
    for (const auto word : base::split(joined, ',')) {
      // One word in quotes may hold several too; "plait run" is the name with a space in it.
      if (word.find("plait run") != std::string_view::npos)
        read_word(std::string(word), problem);
      else
        for (const auto part : base::split(word, ' ')) {
          if (!part.empty()) read_word(std::string(part), problem);
        }
    }
  }
  Place& place = problem.place;
  if (place.launcher.empty() && place.world > 1) place.launcher = "plait run";
  place.rank = std::min(place.rank, place.world - 1);
  PLAIT_CHECK(place.hosts <= place.world, "--why: ", show_count(place.world, "rank"),
              " cannot be on ", place.hosts, " hosts");
  check_transport(problem.transport);
  return problem;
}

Walk walk_transports(const Problem& problem) {
  Walk walk;
  for (const comm::Candidate& candidate :
       comm::walk_transports(problem.transport, {.place = problem.place}, comm::Walk::to_the_end)) {
    Step step = {.name = candidate.entry->name,
                 .answer = candidate.answer.refusal,
                 .can = static_cast<bool>(candidate.answer)};
    if (candidate.chosen) {
      walk.chosen = step.name;
      step.answer =
          problem.transport.empty() ? "chosen: the first that can" : "chosen: it was asked for";
    } else if (step.can && !candidate.wanted) {
      step.answer = "could, but " + problem.transport + " was asked for";
    } else if (step.can) {
      step.answer = "could, but " + walk.chosen + " comes first";
    }
    walk.steps.push_back(std::move(step));
  }
  return walk;
}

std::string show_text(const Problem& problem, const Walk& walk) {
  const Place& place = problem.place;
  std::string text = fmt::format(
      "The transport for {} on {}{}{}\n\n", show_count(place.world, "rank"),
      show_count(place.hosts, "host"),
      place.launcher.empty() ? "" : ", started by " + place.launcher,
      problem.transport.empty() ? "" : ", where " + problem.transport + " is asked for");
  for (const Step& step : walk.steps) {
    const auto label = fmt::format("  {:<9}{:<5}", step.name, step.can ? "yes" : "no");
    text += labelled(label, step.answer, label.size());
  }
  return text + '\n' +
         (walk.chosen.empty() ? "None can be used: connect() will refuse.\n"
                              : "It is " + walk.chosen + ".\n");
}

nlohmann::ordered_json show_json(const Problem& problem, const Walk& walk) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json steps = Json::array();
  for (const Step& step : walk.steps)
    steps.push_back({{"name", step.name}, {"can", step.can}, {"answer", step.answer}});
  return {{"problem",
           {{"ranks", problem.place.world},
            {"hosts", problem.place.hosts},
            {"launcher", or_null(problem.place.launcher)},
            {"transport", or_null(problem.transport)}}},
          {"chosen", or_null(walk.chosen)},
          {"walk", std::move(steps)}};
}

}  // namespace plait::cli
