// plait bench layer and plait bench model: measure what hiding communication gains in a training
// step.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/bench/as_ranks.h"
#include "cli/bench/collective_check.h"
#include "cli/bench/measurements.h"
#include "cli/bench/step_measure.h"
#include "cli/bench/step_memory.h"
#include "cli/bench/step_report.h"
#include "cli/console.h"

namespace plait::cli {
namespace {

void report(const StepOptions& options, const StepMeasurement& result, const Recorded& recorded) {
  const bool speaks = !options.files.silences();
  if (speaks) answer(show_text(options, result));
  write_timelines(options, result, recorded);
  if (speaks) answer(options.files.show());
  options.files.write_json(show_json(options, result));
}

// Rank 0 prints the results; if it can't, all ranks end with the same status.
int be_rank(StepOptions options, Communicator& comm) {
  // A link that PLAIT_LINK sets is the link to measure, as --link is.
  if (!options.link.link && options.link.share == 0) options.link.link = comm.link();
  // Check before any rank allocates memory or spends time.
  const auto refusal = refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable(options.files);
    PLAIT_CHECK(options.link.share == 0 || comm.world() > 1, "--link share=", options.link.share,
                ": one rank has nothing to communicate");
    check_memory(options, comm.world());
  });
  if (refusal) return exit_status(*refusal);
  const StepMeasurement result = measure(options, comm);
  const Recorded recorded = record(options, result, comm);
  const auto failure = refusal_of_all(comm, [&] {
    if (comm.rank() == 0) report(options, result, recorded);
  });
  if (failure) return exit_status(*failure);
  for (const StepTimes& one : result.plans) {
    if (!one.bits_equal) return kCheckFailed;
  }
  return kDone;
}

int measure_step(const StepOptions& options, const char* what, Words words) {
  // Ranks of a launcher check it together, later.
  if (place_from_environment().launcher.empty()) check_writable(options.files);
  std::vector<std::string> whole = {"bench", what};
  whole.insert(whole.end(), words.begin(), words.end());
  return as_ranks({.ranks = options.ranks, .transport = options.transport}, whole,
                  [&](Communicator& comm) { return be_rank(options, comm); });
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
