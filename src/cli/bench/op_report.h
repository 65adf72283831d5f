// The results of plait bench OPERATOR, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/op_measure.h"

namespace plait::cli {

// The machine, and whether products were replaced by waiting.
std::string show_machine(const OpMeasurement& result);

std::string show_text(const OpBenchOptions& options, const OpMeasurement& result);
nlohmann::ordered_json show_json(const OpBenchOptions& options, const OpMeasurement& result);

}  // namespace plait::cli
