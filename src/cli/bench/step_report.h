// The results of plait bench layer and plait bench model, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/step_measure.h"

namespace plait::cli {

// "llama2-70b, 1 of 80 layers, widths x 0.25, 1024 tokens, bf16, wire bf16". Default values, such
// as a wire of f32, are left out.
std::string show_step(const StepOptions& options);

// "AMD EPYC; 2 ranks over shm, emulated link, 10 Gbit/s, 5 us"
std::string show_place(const StepMeasurement& result);

std::string show_text(const StepOptions& options, const StepMeasurement& result);
nlohmann::ordered_json show_json(const StepOptions& options, const StepMeasurement& result);

}  // namespace plait::cli
