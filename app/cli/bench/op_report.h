// The results of plait bench OPERATOR, as text, as JSON and as a timeline.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/op_options.h"
#include "measure/op_measure.h"
#include "report/timeline.h"

namespace plait::cli {

// The recorded runs, each with its efficiency if that is from 0 to 1.1, as the median's is.
report::Timeline timeline_of(const OpBenchOptions& options, const measure::OpMeasurement& result,
                             const measure::Recorded& recorded);

std::string show_text(const OpBenchOptions& options, const measure::OpMeasurement& result);
nlohmann::ordered_json show_json(const OpBenchOptions& options,
                                 const measure::OpMeasurement& result);

}  // namespace plait::cli
