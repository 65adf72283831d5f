// The timeline of a prediction: what every modelled rank does in every plan.
#pragma once

#include <vector>

#include "cli/predict/report.h"
#include "trace/record.h"

namespace plait::cli {

// The records of the ranks in one plan, from 0 to `length`.
struct PlanRecords {
  std::vector<trace::RankRecords> ranks;
  std::int64_t length;
};

// Writes the files that the options request.
void write_timelines(const OpPredictOptions& options, const OpPrediction& prediction,
                     const std::vector<PlanRecords>& plans);

}  // namespace plait::cli
