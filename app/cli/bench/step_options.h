// The options of plait bench layer and plait bench model.
#pragma once

#include <optional>

#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/step_setup.h"

namespace plait::cli {

struct StepOptions : measure::StepSetup {
  OutputFiles files;
};

// nullopt: help was requested and has been printed.
std::optional<StepOptions> read_layer_options(Words words);
std::optional<StepOptions> read_model_options(Words words);

}  // namespace plait::cli
