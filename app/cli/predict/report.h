// The results of plait predict for an operator.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/predict/predict_options.h"

namespace plait::cli {

struct OpPrediction {
  measure::OpSize size;
  double product;                  // nanoseconds, alone
  double collective;               // alone, in the serial schedule
  std::vector<double> plans = {};  // the serial one first

  double ideal() const { return product > collective ? product : collective; }
  double serial() const { return plans.front(); }
  double speedup(std::size_t plan) const { return serial() / plans[plan]; }

  // The share of what could be hidden that is hidden; nothing if that is almost nothing.
  std::optional<double> efficiency(std::size_t plan) const;
};

// The first line of all output.
inline constexpr const char* kItIsAPrediction =
    "Predicted, not measured: plait's own schedules on a modelled machine.";

// The machine's assumptions, one per line; and its figures.
std::string show_assumptions(const predict::Machine& machine);
nlohmann::ordered_json assumptions_json(const predict::Machine& machine);

std::string show_text(const OpPredictOptions& options, const OpPrediction& prediction);
nlohmann::ordered_json show_json(const OpPredictOptions& options, const OpPrediction& prediction);

}  // namespace plait::cli
