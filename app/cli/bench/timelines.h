// The timelines that plait bench and plait trace write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output_files.h"
#include "measure/recording.h"
#include "plait/plan.h"
#include "report/timeline.h"

namespace plait::cli {

// Names the usual files, unless one for a timeline is named.
void name_usual_files(OutputFiles& files);

// Refuses several of what a timeline is of, such as "size".
void check_single(std::string_view what, std::size_t count);

// The recorded runs, one of each plan, or each with its own title.
std::vector<report::Run> runs_of(const std::vector<Plan>& plans, const measure::Recorded& recorded);
std::vector<report::Run> runs_of(const std::vector<std::string>& titles,
                                 const measure::Recorded& recorded);

// "; the hosts' clocks agree to within 5.0 us", or nothing on one host. Those of several hosts are
// never quite equal.
std::string show_clocks(const measure::Recorded& recorded);

// Writes the timelines that are requested, and complains of gaps in them.
void write_timelines(const OutputFiles& files, const report::Timeline& timeline,
                     const measure::Recorded& recorded);

}  // namespace plait::cli
