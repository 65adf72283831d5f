// Kills, stops and loses ranks at random moments, in collectives and in operators, and checks the
// others. Each must get its Error in time, with the right rank in it and, in an operator, the
// operator's name and the chunk. Nothing may be left on the host.
//
//   plait_chaos                      200 kills
//   plait_chaos --rounds 1 --seed 7  one round again
//
// Only SIGKILL and SIGSTOP count as kills; ranks that exit or throw are additional.
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "chaos/leftovers.h"
#include "chaos/round.h"

namespace plait::chaos {
namespace {

constexpr const char* kUsage =
    "usage: plait_chaos [--kills N] [--rounds N] [--seed S] [--world P] [--timeout 700ms] [--json "
    "FILE]\n";

struct Options {
  int kills = 200;
  int rounds = INT_MAX;  // at most
  std::uint64_t seed = 1;
  std::optional<int> world = {};
  base::Nanoseconds timeout = 700 * base::kMillisecond;
  std::string json = {};
};

void read_option(std::string_view option, const std::string& value, Options& options) {
  const auto whole = [&](std::int64_t low, std::int64_t high) {
    const auto number = base::parse_int(value);
    PLAIT_CHECK(number && *number >= low && *number <= high, option, ' ', value,
                " is not a whole number from ", low, " to ", high);
    return *number;
  };
  if (option == "--kills") {
    options.kills = static_cast<int>(whole(1, 1'000'000));
  } else if (option == "--rounds") {
    options.rounds = static_cast<int>(whole(1, 1'000'000));
  } else if (option == "--seed") {
    options.seed = static_cast<std::uint64_t>(whole(0, INT64_MAX));
  } else if (option == "--world") {
    options.world = static_cast<int>(whole(2, 64));
  } else if (option == "--timeout") {
    const auto timeout = base::parse_duration(value);
    PLAIT_CHECK(timeout && *timeout > 0, "--timeout ", value, " is not a duration like 700ms");
    options.timeout = *timeout;
  } else if (option == "--json") {
    options.json = value;
  } else {
    base::fail(Code::invalid_argument, "there is no option ", option);
  }
}

Options read_options(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    PLAIT_CHECK(i + 1 < words.size(), words[i], " needs a value");
    read_option(words[i], words[i + 1], options);
  }
  return options;
}

struct Totals {
  int kills = 0;
  int in_operators = 0;  // of the kills
  int farewells = 0;     // ranks that ended by themselves: exits and exceptions
  int hangs = 0;
  int left_over = 0;
  int wrong = 0;
  int workers = 0;  // forked workers that were alive when their ranks had ended
  // The time until the death, the stop or the absence of a rank was noticed.
  std::vector<base::Nanoseconds> deaths = {};
  std::vector<base::Nanoseconds> stops = {};
  std::vector<base::Nanoseconds> absences = {};
};

std::string line(const Totals& totals) {
  return base::sentence(totals.kills, " kills, ", totals.hangs, " hangs, ", totals.left_over,
                        " leftovers, ", totals.wrong, " wrong");
}

// `times` must be sorted.
base::Nanoseconds quantile(const std::vector<base::Nanoseconds>& times, double share) {
  if (times.empty()) return 0;
  const auto index = static_cast<std::size_t>(share * static_cast<double>(times.size() - 1));
  return times[index];
}

void show_times(const std::string& what, const std::vector<base::Nanoseconds>& times) {
  if (times.empty()) return;
  std::cout << what << ": median " << base::show_duration(quantile(times, 0.5)) << ", 99 % "
            << base::show_duration(quantile(times, 0.99)) << ", slowest "
            << base::show_duration(times.back()) << " (" << times.size() << " survivors)\n";
}

void write_json(std::ostream& out, const Totals& totals, std::uint64_t seed) {
  const auto times = [](const std::vector<base::Nanoseconds>& sorted) {
    return nlohmann::ordered_json{{"survivors", sorted.size()},
                                  {"median_ns", quantile(sorted, 0.5)},
                                  {"slowest_ns", quantile(sorted, 1)}};
  };
  const nlohmann::ordered_json found = {{"seed", seed},
                                        {"kills", totals.kills},
                                        {"kills_in_operators", totals.in_operators},
                                        {"exits_and_exceptions", totals.farewells},
                                        {"hangs", totals.hangs},
                                        {"leftovers", totals.left_over},
                                        {"wrong", totals.wrong},
                                        {"workers", totals.workers},
                                        {"noticed_deaths", times(totals.deaths)},
                                        {"noticed_stops", times(totals.stops)},
                                        {"noticed_absences", times(totals.absences)}};
  out << found.dump(2) << '\n';
}

void tell(const Scene& scene, const Outcome& outcome, const Options& options) {
  std::cout << describe(scene) << '\n';
  for (const std::string& fault : outcome.wrong) std::cout << "  " << fault << '\n';
  for (const std::string& thing : outcome.left_over) std::cout << "  left over: " << thing << '\n';
  std::cout << "  again: plait_chaos --rounds 1 --seed " << scene.seed;
  if (options.world) std::cout << " --world " << *options.world;
  std::cout << " --timeout " << options.timeout / base::kMillisecond << "ms" << std::endl;
}

void count(const Scene& scene, const Outcome& outcome, Totals& totals) {
  ++(is_kill(scene.loss) ? totals.kills : totals.farewells);
  if (is_kill(scene.loss) && outcome.multiplied) ++totals.in_operators;
  totals.hangs += outcome.hangs;
  totals.workers += outcome.workers;
  totals.left_over += static_cast<int>(outcome.left_over.size());
  totals.wrong += static_cast<int>(outcome.wrong.size());
  auto& times = !outcome.joined            ? totals.absences
                : scene.loss == Loss::stop ? totals.stops
                                           : totals.deaths;
  times.insert(times.end(), outcome.noticed.begin(), outcome.noticed.end());
}

int run(const Options& options) {
  // Opened first, because isolation may replace /tmp.
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);
    PLAIT_CHECK(json.is_open(), "cannot write ", options.json);
  }
  const bool isolated = isolate();
  if (!isolated) std::cout << "not isolated: files are recognised by their names\n" << std::flush;
  // Ranks refuse to meet in a folder that others can access.
  std::string folder = "/tmp/plait-chaos-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) base::fail_errno("cannot make a folder in /tmp");
  ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  Totals totals;
  for (int round = 0; totals.kills < options.kills && round < options.rounds; ++round) {
    const Scene scene = make_scene(options.seed + round, options.world, options.timeout);
    const Outcome outcome = run_round(scene, isolated);
    count(scene, outcome, totals);
    if (!outcome.wrong.empty() || !outcome.left_over.empty()) tell(scene, outcome, options);
    if (terminal) std::cerr << '\r' << line(totals) << " of " << options.kills << std::flush;
  }
  if (terminal) std::cerr << "\r\033[K";
  ::rmdir(folder.c_str());
  for (auto* times : {&totals.deaths, &totals.stops, &totals.absences})
    std::sort(times->begin(), times->end());
  show_times("deaths were noticed after", totals.deaths);
  show_times("stops, with a deadline of " + base::show_duration(options.timeout), totals.stops);
  show_times("ends before a rank had joined", totals.absences);
  if (json.is_open()) write_json(json, totals, options.seed);
  std::cout << totals.in_operators << " of the kills came in the midst of an operator; on top of "
            << "them all: " << totals.farewells << " others that exited or threw; "
            << totals.workers << " workers that ranks had forked outlived them\n";
  std::cout << line(totals) << '\n';
  return totals.hangs + totals.left_over + totals.wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace plait::chaos

int main(int count, char** words) {
  try {
    return plait::chaos::run(plait::chaos::read_options({words + 1, words + count}));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plait_chaos: %s\n%s", error.what(), plait::chaos::kUsage);
    return 2;
  }
}
