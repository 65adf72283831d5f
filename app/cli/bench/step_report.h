// The results of plait bench layer and plait bench model, as text, as JSON and as a
// timeline.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/step_options.h"
#include "measure/step_measure.h"
#include "report/timeline.h"

namespace plait::cli {

// The recorded runs.
report::Timeline timeline_of(const StepOptions& options, const measure::StepMeasurement& result,
                             const measure::Recorded& recorded);

std::string show_text(const StepOptions& options, const measure::StepMeasurement& result);
nlohmann::ordered_json show_json(const StepOptions& options,
                                 const measure::StepMeasurement& result);

}  // namespace plait::cli
