// plait bench layer and plait bench model: what hiding communication brings a training step.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "cli/bench/consent.h"
#include "cli/bench/measurements.h"
#include "cli/bench/recording.h"
#include "cli/bench/step_case.h"
#include "cli/bench/step_measure.h"
#include "cli/bench/step_report.h"
#include "cli/speech.h"

namespace plait::cli {
namespace {

void check_writable_files(const StepOptions& options) {
  for (const std::string& file : {options.json, options.trace, options.html, options.svg}) {
    if (!file.empty() && file != "-") base::check_writable(file);
  }
}

void tell(const StepOptions& options, const StepMeasurement& result) {
  const std::string json = show_json(options, result).dump(2) + "\n";
  if (options.json == "-") return answer(json);
  answer(show_text(options, result));
  if (!options.html.empty()) answer("Timeline: " + options.html + "\n");
  if (!options.svg.empty()) answer("Picture: " + options.svg + "\n");
  if (!options.trace.empty()) answer("For Perfetto: " + options.trace + "\n");
  if (!options.json.empty()) write_file(options.json, json);
}

// Rank 0 speaks.
int be_rank(const StepOptions& options, Communicator& comm) {
  const auto refusal = refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable_files(options);
    check_memory(options, comm.world());
  });
  if (refusal) return exit_status(*refusal);
  const StepMeasurement result = measure(options, comm);
  trace(options, result, comm);
  if (comm.rank() == 0) tell(options, result);
  for (const StepTimes& one : result.plans) {
    if (!one.bits_equal) return kCheckFailed;
  }
  return kDone;
}

int run_threads(const StepOptions& options) {
  int status = kDone;
  run_in_threads(options.ranks, [&](Communicator& comm) {
    const int mine = be_rank(options, comm);
    if (comm.rank() == 0) status = mine;
  });
  return status;
}

int measure_step(const StepOptions& options, const char* what, Words words) {
  if (options.transport == "threads") return run_threads(options);
  if (place_from_environment().launcher.empty()) {
    check_writable_files(options);
    // This very command, once for each rank.
    std::vector<std::string> launch = {
        "-n", std::to_string(options.ranks), "--", "/proc/self/exe", "bench", what};
    launch.insert(launch.end(), words.begin(), words.end());
    return run(launch);
  }
  Communicator comm = Communicator::connect({.transport = options.transport});
  return be_rank(options, comm);
}

}  // namespace

int bench_layer(Words words) {
  const auto options = read_layer_options(words);
  return options ? measure_step(*options, "layer", words) : kDone;
}

int bench_model(Words words) {
  const auto options = read_model_options(words);
  return options ? measure_step(*options, "model", words) : kDone;
}

}  // namespace plait::cli
