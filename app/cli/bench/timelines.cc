#include "cli/bench/timelines.h"

#include <string>

#include "cli/console.h"
#include "plait/trace.h"
#include "report/page.h"
#include "report/picture.h"

namespace plait::cli {

std::vector<report::Run> runs_of(const std::vector<Plan>& plans,
                                 const measure::Recorded& recorded) {
  std::vector<report::Run> runs;
  runs.reserve(recorded.runs.size());
  for (std::size_t i = 0; i < recorded.runs.size(); ++i)
    runs.push_back(report::run_of(name(plans[i]), recorded.ranks, recorded.runs[i]));
  return runs;
}

void write_timelines(const OutputFiles& files, const report::Timeline& timeline,
                     const measure::Recorded& recorded) {
  for (const std::string& gap : recorded.gaps) complain("plait", gap);
  if (!files.trace.empty()) write_json(files.trace, recorded.packs);
  if (!files.html.empty()) write_file(files.html, report::page(timeline));
  if (!files.svg.empty()) write_file(files.svg, report::picture_file(timeline));
}

}  // namespace plait::cli
