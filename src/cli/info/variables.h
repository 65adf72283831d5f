// The variables of the environment that plait reads.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace plait::cli {

// What communicators and kernels read from the environment alone.
struct EnvironmentSetting {
  std::string name;
  std::string variable;
  std::string usual;  // the value where the variable is not set
};

std::vector<EnvironmentSetting> environment_settings();

// Those that are set, of plait's and of MindSpeed CoC's.
std::map<std::string, std::string> find_variables();

// "plait does not read it; did you mean PLAIT_TIMEOUT?"; empty for one that it reads.
std::string why_unknown(const std::string& variable);

}  // namespace plait::cli
