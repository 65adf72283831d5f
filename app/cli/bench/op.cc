// plait bench OPERATOR: measures what hiding the collective gains, next to the best possible.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/as_ranks.h"
#include "cli/bench/measurements.h"
#include "cli/bench/op_report.h"
#include "cli/bench/timelines.h"
#include "cli/console.h"
#include "cli/values.h"
#include "comm/session/state.h"
#include "measure/collective_check.h"
#include "measure/op_measure.h"
#include "ops/shapes.h"
#include "plan/families.h"

namespace plait::cli {
namespace {

// One problem is an object; several are a list of objects.
nlohmann::ordered_json show_json(const OpBenchOptions& options,
                                 const std::vector<measure::OpMeasurement>& results) {
  if (options.sizes.size() == 1) return show_json(options, results.front());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const measure::OpMeasurement& result : results) list.push_back(show_json(options, result));
  return list;
}

// Reports the last of the results, which is new.
void report_last(const OpBenchOptions& options, const std::vector<measure::OpMeasurement>& results,
                 const measure::Recorded& recorded) {
  const bool speaks = !options.files.silences();
  if (speaks && results.size() > 1) answer("\n");
  if (speaks) answer(show_text(options, results.back()));
  if (options.files.traces())
    write_timelines(options.files, timeline_of(options, results.back(), recorded), recorded);
  if (speaks) answer(options.files.show());
  // Results that are already written survive an interruption. Printed JSON is one text, at the end.
  const bool last = results.size() == options.sizes.size();
  if (last || speaks) options.files.write_json(show_json(options, results));
}

// Rank 0 prints one table after another; if it can't, all ranks end with the same status.
int be_rank(OpBenchOptions options, Communicator& whole) {
  // A link that PLAIT_LINK sets is the link to measure, as --link is. It must not slow the other
  // measurements.
  if (!options.link.link && options.link.ratio == 0) options.link.link = whole.link();
  Communicator comm = whole.with_link(std::nullopt);
  const int hosts = comm.state().hosts();
  options.chose_wire =
      hosts > 1 && traits_of(options.op).shares_k && options.wire == kAutomaticWire;
  options.wire = ops::wire_of(options.op, options.x, options.wire, hosts);
  // Check before any rank allocates memory or spends time.
  const auto refusal = measure::refusal_of_all(comm, [&] {
    if (comm.rank() == 0) check_writable(options.files);
    PLAIT_CHECK(options.link.ratio == 0 || comm.world() > 1, "--link ratio=", options.link.ratio,
                ": one rank has nothing to communicate");
    for (const measure::OpSize& size : options.sizes) {
      PlanKey key = measure::problem_of(options, size).key;
      key.world = comm.world();
      if (options.exchange) {
        key.family = options.exchange->family;
        key.op = options.exchange->like();
      }
      measure::check_memory(key);
    }
  });
  if (refusal) return exit_status(*refusal);
  std::vector<measure::OpMeasurement> results;
  for (const measure::OpSize& size : options.sizes) {
    results.push_back(measure::measure(options, size, comm));
    const measure::Recorded recorded = options.files.traces()
                                           ? measure::record(options, results.back(), comm)
                                           : measure::Recorded{};
    const auto failure = measure::refusal_of_all(comm, [&] {
      if (comm.rank() == 0) report_last(options, results, recorded);
    });
    if (failure) return exit_status(*failure);
  }
  for (const measure::OpMeasurement& result : results) {
    for (const measure::PlanTimes& one : result.plans) {
      if (!one.bits_equal) return kCheckFailed;
    }
  }
  return kDone;
}

}  // namespace

std::optional<MeasuredOperator> find_measured(std::string_view spelling) {
  if (const auto op = parse_operator(spelling)) return MeasuredOperator{.op = *op};
  const plan::FamilyCall* const call = plan::find_family_call(spelling);
  if (call == nullptr || call->family == Family::experts) return std::nullopt;
  return MeasuredOperator{
      .exchange = {{.family = call->family, .product_first = is_compute_first(call->like)}}};
}

std::vector<std::string> measured_words() {
  std::vector<std::string> words = operator_words();
  for (const plan::FamilyCall& call : plan::family_calls())
    if (call.family != Family::experts) words.push_back(word_of(call.name));
  return words;
}

int measure_operator(const std::string& verb, const std::string& spelling, Words words) {
  const auto op = find_measured(spelling);
  PLAIT_CHECK(op, "there is no operator ", spelling);
  const auto options = read_op_options(verb == "trace" ? OpVerb::trace : OpVerb::bench, *op, words);
  if (!options) return kDone;
  // Ranks of a launcher check it together, later.
  if (place_from_environment().launcher.empty()) check_writable(options->files);
  std::vector<std::string> whole = {verb, spelling};
  whole.insert(whole.end(), words.begin(), words.end());
  return as_ranks({.ranks = options->ranks, .transport = options->transport}, whole,
                  [&](Communicator& comm) { return be_rank(*options, comm); });
}

}  // namespace plait::cli
