#include "environment/variables.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/env.h"
#include "base/instruction_set.h"
#include "base/nearest.h"
#include "comm/control/ports.h"
#include "comm/control/rendezvous.h"
#include "comm/core/wait_policy.h"
#include "comm/emulated/link_clock.h"
#include "comm/session/transports.h"
#include "plait/settings.h"
#include "plan/settings/coc.h"
#include "plan/settings/table.h"

namespace plait::environment {
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
          {"timeout", "PLAIT_TIMEOUT", base::sentence(policy.timeout / base::kSecond, 's')},
          {"lost_after", "PLAIT_LOST_AFTER",
           base::sentence(static_cast<double>(policy.lost_after) / base::kSecond, 's')},
          {"wait", "PLAIT_WAIT",
           base::sentence("spin=", policy.spin / base::kMicrosecond,
                          "us,yield=", policy.yield / base::kMicrosecond, "us")},
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

void check_values() {
  comm::check_transport(base::env("PLAIT_TRANSPORT").value_or(""));
  comm::link_from_environment();
  comm::wait_policy_from_environment();
  base::usable_instruction_set();
  comm::tcp::secret_from_environment();
  comm::tcp::ports_from_environment();
  if (base::env("PLAIT_RENDEZVOUS")) comm::tcp::rendezvous_from_environment();
}

}  // namespace plait::environment

namespace plait {

std::vector<std::string> check_environment() {
  load_settings();
  environment::check_values();
  std::vector<std::string> remarks;
  for (const auto& [variable, value] : environment::find_variables()) {
    if (const std::string why = environment::why_unknown(variable); !why.empty())
      remarks.push_back(base::sentence(variable, ": ", why));
  }
  return remarks;
}

}  // namespace plait
