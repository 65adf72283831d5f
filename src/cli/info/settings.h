// plait info --settings: every setting, its value, and who said it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace plait::cli {

struct SettingFinding {
  std::string name;
  std::string value;     // as a variable would say it
  std::string origin;    // "default", "PLAIT_PLAN", "plait.toml:3"
  std::string variable;  // that would set it
};

struct SettingFindings {
  std::string file;  // that PLAIT_CONFIG names; empty: none
  std::vector<SettingFinding> settings;
  std::vector<SettingFinding> of_environment;
  std::vector<std::string> remarks;
};

// As load_settings() finds them, which may refuse them, and connect(), and the kernels.
SettingFindings find_settings();

std::string show_text(const SettingFindings& findings);
nlohmann::ordered_json show_json(const SettingFindings& findings);

}  // namespace plait::cli
