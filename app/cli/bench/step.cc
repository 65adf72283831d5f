// plait bench layer and plait bench model: measure what hiding communication gains in a step.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/as_ranks.h"
#include "cli/bench/measurements.h"
#include "cli/bench/step.h"
#include "cli/bench/timelines.h"
#include "cli/console.h"
#include "measure/collective_check.h"
#include "measure/step_case.h"
#include "measure/step_measure.h"

namespace plait::cli {
namespace {

// Records of one run of each plan for timelines, and of a loop of steps that decode.
struct Records {
  measure::Recorded plans;
  measure::Recorded loop;
};

Records record(const StepOptions& options, const measure::StepMeasurement& result,
               Communicator& comm) {
  Records records;
  if (options.files.traces()) records.plans = measure::record(options, result, comm);
  if (options.decodes) records.loop = measure::record_loop(options, result, comm);
  return records;
}

void report(const StepOptions& options, const measure::StepMeasurement& result,
            const Records& records) {
  const bool speaks = !options.files.silences();
  std::optional<StepProfile> profile;
  if (!records.loop.gaps.empty()) {
    complain("plait bench",
             "no profile: a timeline has no room for all records of these steps;"
             " take fewer rows or blocks");
  } else if (options.decodes) {
    profile = profile_of(options, result, records.loop);
  }
  if (speaks) answer(show_text(options, result) + (profile ? show_text(*profile) : ""));
  if (options.files.traces())
    write_timelines(options.files, timeline_of(options, result, records.plans), records.plans);
  if (speaks) answer(options.files.show());
  options.files.write_json(show_json(options, result, profile));
}

// Rank 0 prints the results; if it can't, all ranks end with the same status.
int be_rank(StepOptions options, Communicator& comm) {
  // A link that PLAIT_LINK sets is the link to measure, as --link is.
  if (!options.link.link && options.link.share == 0) options.link.link = comm.link();
  // Check before any rank allocates memory or spends time.
  const auto refusal = measure::refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable(options.files);
    PLAIT_CHECK(options.link.share == 0 || comm.world() > 1, "--link share=", options.link.share,
                ": one rank has nothing to communicate");
    measure::check_memory(options, comm.world());
  });
  if (refusal) return exit_status(*refusal);
  const measure::StepMeasurement result = measure::measure(options, comm);
  if (comm.rank() == 0 && options.link.share > 0 && result.misses(options.link.share)) {
    complain("plait bench", fmt::format("no link was found that makes communication a share of "
                                        "{:g}: it is {:.3f} of the serial step",
                                        options.link.share, result.comm_share()));
  }
  const Records records = record(options, result, comm);
  const auto failure = measure::refusal_of_all(comm, [&] {
    if (comm.rank() == 0) report(options, result, records);
  });
  if (failure) return exit_status(*failure);
  for (const measure::StepTimes& one : result.plans) {
    if (!one.bits_equal) return kCheckFailed;
  }
  return kDone;
}

int measure_step(const StepOptions& options, const char* what, Words words) {
  // If a launcher has started the ranks, they check it together later.
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
