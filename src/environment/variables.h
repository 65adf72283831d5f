// The environment variables that plait reads, of all modules.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace plait::environment {

// Settings that communicators and kernels read from the environment only.
struct EnvironmentSetting {
  std::string name;
  std::string variable;
  std::string usual;  // the value if the variable is not set
};

std::vector<EnvironmentSetting> environment_settings();

// The value as it may be shown: not that of a secret.
std::string shown_value(const std::string& variable, const std::string& value);

// The variables of plait and of MindSpeed CoC that are set, with their shown values.
std::map<std::string, std::string> find_variables();

// "plait does not read it; did you mean PLAIT_TIMEOUT?"; empty for a variable that it reads.
std::string why_unknown(const std::string& variable);

// Refuses the first value that communicators or kernels refuse when they read it.
void check_values();

}  // namespace plait::environment
