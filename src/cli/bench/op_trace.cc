#include "cli/bench/op_trace.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/bench/op_report.h"
#include "plait/trace.h"
#include "report/page.h"
#include "report/picture.h"
#include "tune/op_case.h"

namespace plait::cli {

Recorded record(const OpBenchOptions& options, const OpMeasurement& result, Communicator& comm) {
  if (!options.files.traces()) return {};
  Recording recording(comm);
  const tune::OpCase one(problem_of(options, result.size), comm);
  {
    Communicator traced = comm.with_link(result.link);
    for (const Plan& plan : options.plans) {
      const auto runner = one.runner(plan, traced);
      runner->run(result.pace);  // so that it is as warm as the measured runs
      recording.run(name(plan), [&] { runner->run(result.pace); });
    }
  }
  return recording.collect();
}

void write_timelines(const OpBenchOptions& options, const OpMeasurement& result,
                     const Recorded& recorded) {
  if (!options.files.trace.empty()) write_json(options.files.trace, recorded.packs);
  if (!options.files.draws()) return;
  report::Timeline timeline = {
      .title = fmt::format("{}, m={} n={} k={}, {} by {}", name(options.op), result.size.m,
                           result.size.n, result.size.k, name(options.x), options.weight),
      .subtitle =
          fmt::format("{}; {} over {}{}", show_machine(result),
                      base::show_count(static_cast<std::size_t>(result.ranks), "rank"), result.transport,
                      result.link ? ", " + plait::describe(*result.link) : std::string()),
      .product = static_cast<std::int64_t>(result.product.median),
      .collective = static_cast<std::int64_t>(result.collective.median),
      .runs = {}};
  for (std::size_t i = 0; i < options.plans.size(); ++i) {
    timeline.runs.push_back(
        report::run_of(name(options.plans[i]), recorded.ranks, recorded.runs[i]));
    if (i == 0) continue;
    // The efficiency of the runs that are drawn, not of the medians.
    report::Run& run = timeline.runs.back();
    run.efficiency = result.efficiency(static_cast<double>(run.length),
                                       static_cast<double>(timeline.runs.front().length));
  }
  if (!options.files.html.empty()) write_file(options.files.html, report::page(timeline));
  if (!options.files.svg.empty()) write_file(options.files.svg, report::picture_file(timeline));
}

}  // namespace plait::cli
