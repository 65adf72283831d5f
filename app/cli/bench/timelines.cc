#include "cli/bench/timelines.h"

#include "base/check.h"
#include "cli/console.h"
#include "cli/table.h"
#include "plait/trace.h"
#include "report/page.h"
#include "report/picture.h"

namespace plait::cli {

void name_usual_files(OutputFiles& files) {
  if (files.traces()) return;
  files.trace = "plait-trace.json";
  files.html = "plait-trace.html";
}

void check_single(std::string_view what, std::size_t count) {
  PLAIT_CHECK(count == 1, "a timeline needs exactly one ", what, ", not ", count);
}

std::vector<report::Run> runs_of(const std::vector<Plan>& plans,
                                 const measure::Recorded& recorded) {
  std::vector<std::string> titles;
  titles.reserve(plans.size());
  for (const Plan& plan : plans) titles.push_back(name(plan));
  return runs_of(titles, recorded);
}

std::vector<report::Run> runs_of(const std::vector<std::string>& titles,
                                 const measure::Recorded& recorded) {
  std::vector<report::Run> runs;
  runs.reserve(recorded.runs.size());
  for (std::size_t i = 0; i < recorded.runs.size(); ++i)
    runs.push_back(report::run_of(titles[i], recorded.ranks, recorded.runs[i]));
  return runs;
}

std::string show_clocks(const measure::Recorded& recorded) {
  if (recorded.clock_uncertainty == 0) return "";
  return "; the hosts' clocks agree to within " +
         show_time(static_cast<double>(recorded.clock_uncertainty));
}

void write_timelines(const OutputFiles& files, const report::Timeline& timeline,
                     const measure::Recorded& recorded) {
  for (const std::string& gap : recorded.gaps) complain("plait", gap);
  if (!files.trace.empty()) write_json(files.trace, recorded.packs);
  if (!files.html.empty()) write_file(files.html, report::page(timeline));
  if (!files.svg.empty()) write_file(files.svg, report::picture_file(timeline));
}

}  // namespace plait::cli
