// How long a verb measures.
#pragma once

#include <string>

#include "measure/race.h"

namespace plait::cli {

class Options;

// `seconds`: the default of --seconds, which the effort gets now.
void add_options(Options& options, measure::Effort& effort, const std::string& seconds);

}  // namespace plait::cli
