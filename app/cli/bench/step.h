// plait bench layer and plait bench model: their options, and their results as text, as JSON and as
// a timeline.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/bench/step_profile.h"
#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/step_measure.h"
#include "measure/step_setup.h"
#include "report/timeline.h"

namespace plait::cli {

struct StepOptions : measure::StepSetup {
  OutputFiles files;
};

// nullopt: help was requested and has been printed.
std::optional<StepOptions> read_layer_options(Words words);
std::optional<StepOptions> read_model_options(Words words);

// The recorded runs.
report::Timeline timeline_of(const StepOptions& options, const measure::StepMeasurement& result,
                             const measure::Recorded& recorded);

std::string show_text(const StepOptions& options, const measure::StepMeasurement& result);
// `profile`: of steps that decode.
nlohmann::ordered_json show_json(const StepOptions& options, const measure::StepMeasurement& result,
                                 const std::optional<StepProfile>& profile);

}  // namespace plait::cli
