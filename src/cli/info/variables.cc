#include "cli/info/variables.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/nearest.h"
#include "comm/wait_policy.h"
#include "plan/settings/coc.h"
#include "plan/settings/table.h"

namespace plait::cli {
namespace {

// Variables that a launcher sets for a rank, the path of the settings, and the file in which the
// checks of a GPU find cuBLASLt.
constexpr std::string_view kOthers[] = {
    "PLAIT_RANK",      "PLAIT_LOCAL_RANK", "PLAIT_WORLD_SIZE", "PLAIT_LOCAL_WORLD_SIZE",
    "PLAIT_JOB",       "PLAIT_CONFIG",     "PLAIT_RSH",        "PLAIT_PART",
    "PLAIT_PLACEMENT", "PLAIT_CUBLASLT"};

constexpr const char* kSecretVariable = "PLAIT_SECRET";

bool is_ours(std::string_view variable) {
  return variable.starts_with("PLAIT_") || variable.starts_with("COC_") ||
         variable.starts_with("USE_COC_");
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names(std::begin(kOthers), std::end(kOthers));
  for (const EnvironmentSetting& setting : environment_settings())
    names.push_back(setting.variable);
  for (const plan::Setting& setting : plan::all_settings()) names.emplace_back(setting.variable);
  for (const plan::CocVariable& one : plan::kCocVariables) names.emplace_back(one.variable);
  return names;
}

}  // namespace

std::vector<EnvironmentSetting> environment_settings() {
  const comm::WaitPolicy policy;
  return {{"transport", "PLAIT_TRANSPORT", "auto"},
          {"link", "PLAIT_LINK", "none"},
          {"timeout", "PLAIT_TIMEOUT", fmt::format("{}s", policy.timeout / base::kSecond)},
          {"lost_after", "PLAIT_LOST_AFTER",
           fmt::format("{:g}s", static_cast<double>(policy.lost_after) / base::kSecond)},
          {"wait", "PLAIT_WAIT",
           fmt::format("spin={}us,yield={}us", policy.spin / base::kMicrosecond,
                       policy.yield / base::kMicrosecond)},
          {"rendezvous", "PLAIT_RENDEZVOUS", "auto"},
          {"interface", "PLAIT_INTERFACE", "all"},
          {"ports", "PLAIT_PORTS", "any"},
          {"host", "PLAIT_HOST", "none"},
          {"secret", kSecretVariable, "none"},
          {"plugin_path", "PLAIT_PLUGIN_PATH", "auto"},
          {"isa", "PLAIT_ISA", "auto"}};
}

std::string shown_value(const std::string& variable, const std::string& value) {
  return variable == kSecretVariable ? "(not shown)" : value;
}

std::map<std::string, std::string> find_variables() {
  std::map<std::string, std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (!is_ours(text) || equals == std::string_view::npos) continue;
    const std::string name(text.substr(0, equals));
    variables.emplace(name, shown_value(name, std::string(text.substr(equals + 1))));
  }
  return variables;
}

std::string why_unknown(const std::string& variable) {
  const std::vector<std::string> known = known_variables();
  if (std::find(known.begin(), known.end(), variable) != known.end()) return "";
  return "plait does not read it" + base::did_you_mean(variable, known);
}

}  // namespace plait::cli
