#include "cli/info/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/env.h"
#include "base/text.h"
#include "cli/table.h"
#include "cli/values.h"
#include "environment/variables.h"
#include "plan/settings/load.h"
#include "plan/settings/table.h"

namespace plait::cli {
namespace {

// Adds a table of shapes as rows below one another.
void add_lines(Table& table, const SettingFinding& setting) {
  std::string name = setting.name;
  std::string origin = setting.origin;
  for (std::string_view row : base::split(setting.value, ';')) {
    if (row.starts_with(' ')) row.remove_prefix(1);
    table.add({std::exchange(name, ""), std::string(row), std::exchange(origin, "")});
  }
}

std::string lines_of(const std::vector<SettingFinding>& settings, std::string head) {
  Table table({std::move(head), "value", "from"}, 3);
  for (const SettingFinding& setting : settings) {
    // Other values may be paths, which may contain any character.
    if (setting.name == "customized")
      add_lines(table, setting);
    else
      table.add({setting.name, setting.value, setting.origin});
  }
  return table.text();
}

// The name of the backend is otherwise checked only when a product runs.
void remark_on_backend(SettingFindings& findings, const plan::Loaded& loaded) {
  const std::string& wanted = loaded.settings.backend;
  if (wanted.empty()) return;
  const std::vector<std::string> names = backend_names();
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return;
  findings.remarks.push_back(
      fmt::format("backend = {} ({}): there is no such backend; there are {}", wanted,
                  loaded.origin("backend"), fmt::join(names, ", ")));
}

}  // namespace

SettingFindings find_settings() {
  const plan::Loaded loaded = plan::load(plan::process_environment());
  SettingFindings findings = {
      .file = loaded.file, .settings = {}, .of_environment = {}, .remarks = loaded.remarks};
  for (const plan::Setting& setting : plan::all_settings()) {
    findings.settings.push_back({.name = std::string(setting.name),
                                 .value = setting.show(loaded.settings),
                                 .origin = loaded.origin(setting.name),
                                 .variable = std::string(setting.variable)});
  }
  remark_on_backend(findings, loaded);
  for (std::string& remark : check_environment()) findings.remarks.push_back(std::move(remark));
  for (const environment::EnvironmentSetting& setting : environment::environment_settings()) {
    const auto value = base::env(setting.variable.c_str());
    findings.of_environment.push_back(
        {.name = setting.name,
         .value = value ? environment::shown_value(setting.variable, *value) : setting.usual,
         .origin = value ? setting.variable : "default",
         .variable = setting.variable});
  }
  return findings;
}

std::string show_text(const SettingFindings& findings) {
  std::string text = findings.file.empty()
                         ? std::string("PLAIT_CONFIG names no file.\n\n")
                         : "Settings from " + findings.file + " and the environment.\n\n";
  text += lines_of(findings.settings, "setting") + '\n';
  text += lines_of(findings.of_environment, "environment only");
  for (const std::string& remark : findings.remarks) text += '\n' + remark + '\n';
  return text;
}

nlohmann::ordered_json show_json(const SettingFindings& findings) {
  using Json = nlohmann::ordered_json;
  Json settings = Json::array();
  for (const auto* group : {&findings.settings, &findings.of_environment}) {
    for (const SettingFinding& setting : *group) {
      settings.push_back({{"name", setting.name},
                          {"value", setting.value},
                          {"from", setting.origin},
                          {"variable", setting.variable}});
    }
  }
  return {{"file", findings.file.empty() ? Json() : Json(findings.file)},
          {"settings", std::move(settings)},
          {"remarks", findings.remarks}};
}

}  // namespace plait::cli
