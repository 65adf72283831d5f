// plait bench OPERATOR: what hiding the collective brings, beside what it could bring at best.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "cli/bench/consent.h"
#include "cli/bench/measurements.h"
#include "cli/bench/op_measure.h"
#include "cli/bench/op_memory.h"
#include "cli/bench/op_report.h"
#include "cli/bench/op_trace.h"
#include "cli/speech.h"

namespace plait::cli {
namespace {

// One problem is an object, several are a list of them.
nlohmann::ordered_json show_json(const OpBenchOptions& options,
                                 const std::vector<OpMeasurement>& results) {
  if (results.size() == 1) return show_json(options, results.front());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OpMeasurement& result : results) list.push_back(show_json(options, result));
  return list;
}

void write(const OpBenchOptions& options, const std::vector<OpMeasurement>& results) {
  if (options.json.empty()) return;
  const std::string text = show_json(options, results).dump(2) + "\n";
  if (options.json == "-") return answer(text);
  base::AtomicFile file(options.json);
  file.append(text);
  file.commit();
}

void check_writable_files(const OpBenchOptions& options) {
  for (const std::string& file : {options.json, options.trace, options.html, options.svg}) {
    if (!file.empty() && file != "-") base::check_writable(file);
  }
}

// Rank 0 speaks, table by table.
int be_rank(const OpBenchOptions& options, Communicator& comm) {
  // Before anybody takes memory, or time.
  const auto refusal = refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable_files(options);
    for (const OpSize& size : options.sizes) check_memory(size, comm.world());
  });
  if (refusal) return exit_status(*refusal);
  std::vector<OpMeasurement> results;
  for (const OpSize& size : options.sizes) {
    results.push_back(measure(options, size, comm));
    trace(options, results.back(), comm);
    if (comm.rank() != 0 || options.json == "-") continue;
    if (results.size() > 1) answer("\n");
    answer(show_text(options, results.back()));
    if (!options.html.empty()) answer("Timeline: " + options.html + "\n");
    if (!options.svg.empty()) answer("Picture: " + options.svg + "\n");
    if (!options.trace.empty()) answer("For Perfetto: " + options.trace + "\n");
  }
  if (comm.rank() == 0) write(options, results);
  for (const OpMeasurement& result : results) {
    for (const PlanTimes& one : result.plans) {
      if (!one.bits_equal) return kCheckFailed;
    }
  }
  return kDone;
}

int run_threads(const OpBenchOptions& options) {
  int status = kDone;
  run_in_threads(options.ranks, [&](Communicator& comm) {
    const int mine = be_rank(options, comm);
    if (comm.rank() == 0) status = mine;
  });
  return status;
}

// This very command, once for each rank.
int run_processes(const OpBenchOptions& options, Words whole) {
  std::vector<std::string> launch = {"-n", std::to_string(options.ranks), "--", "/proc/self/exe"};
  launch.insert(launch.end(), whole.begin(), whole.end());
  return run(launch);
}

}  // namespace

int measure_operator(const std::string& verb, const std::string& spelling, Words words) {
  const auto op = parse_operator(spelling);
  PLAIT_CHECK(op, "there is no operator ", spelling);
  const auto options = read_op_options(verb == "trace" ? OpVerb::trace : OpVerb::bench, *op, words);
  if (!options) return kDone;
  if (options->transport == "threads") return run_threads(*options);
  if (place_from_environment().launcher.empty()) {
    std::vector<std::string> whole = {verb, spelling};
    whole.insert(whole.end(), words.begin(), words.end());
    check_writable_files(*options);
    return run_processes(*options, whole);
  }
  Communicator comm = Communicator::connect({.transport = options->transport});
  return be_rank(*options, comm);
}

}  // namespace plait::cli
