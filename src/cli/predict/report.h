// What plait predict says of an operator.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/predict/options.h"

namespace plait::cli {

struct OpPrediction {
  OpSize size;
  double product;             // nanoseconds, alone
  double collective;          // alone, by the serial schedule
  std::vector<double> plans;  // the serial one first

  double ideal() const { return product > collective ? product : collective; }
  double serial() const { return plans.front(); }
  double speedup(std::size_t plan) const { return serial() / plans[plan]; }

  // How much of what could be hidden is; nothing where that is next to nothing.
  std::optional<double> efficiency(std::size_t plan) const;
};

// What everybody has to know first.
inline constexpr const char* kItIsAPrediction =
    "Predicted, not measured: plait's own schedules, played on a modelled machine.";

// The machine, an assumption a line; and its figures.
std::string show_assumptions(const predict::Machine& machine);
nlohmann::ordered_json assumptions_json(const predict::Machine& machine);

std::string show_text(const OpPredictOptions& options, const OpPrediction& prediction);
nlohmann::ordered_json show_json(const OpPredictOptions& options, const OpPrediction& prediction);

}  // namespace plait::cli
