// The timelines that plait bench and plait trace write.
#pragma once

#include <vector>

#include "cli/output_files.h"
#include "measure/recording.h"
#include "plait/plan.h"
#include "report/timeline.h"

namespace plait::cli {

// The recorded runs, one of each plan.
std::vector<report::Run> runs_of(const std::vector<Plan>& plans, const measure::Recorded& recorded);

// Writes the timelines that are requested, and complains of gaps in them.
void write_timelines(const OutputFiles& files, const report::Timeline& timeline,
                     const measure::Recorded& recorded);

}  // namespace plait::cli
