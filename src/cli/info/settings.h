// plait info --settings: shows every setting, its value and its origin.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace plait::cli {

struct SettingFinding {
  std::string name;
  std::string value;     // as a variable's value
  std::string origin;    // "default", "PLAIT_PLAN", "plait.toml:3"
  std::string variable;  // the variable that sets it
};

struct SettingFindings {
  std::string file;  // the file that PLAIT_CONFIG names; empty: none
  std::vector<SettingFinding> settings;
  std::vector<SettingFinding> of_environment;
  std::vector<std::string> remarks;
};

// Finds the settings as load_settings(), connect() and the kernels do; they may be refused.
SettingFindings find_settings();

std::string show_text(const SettingFindings& findings);
nlohmann::ordered_json show_json(const SettingFindings& findings);

}  // namespace plait::cli
