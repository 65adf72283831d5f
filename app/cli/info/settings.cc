#include "cli/info/records.h"

#include <fmt/format.h>

#include <algorithm>
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
void add_lines(Table& table, const Json& setting) {
  auto name = setting["name"].get<std::string>();
  auto origin = setting["from"].get<std::string>();
  const auto value = setting["value"].get<std::string>();
  for (std::string_view row : base::split(value, ';')) {
    if (row.starts_with(' ')) row.remove_prefix(1);
    table.add({std::exchange(name, ""), std::string(row), std::exchange(origin, "")});
  }
}

std::string lines_of(Json::const_iterator from, const Json::const_iterator& to, std::string head) {
  Table table({std::move(head), "value", "from"}, 3);
  for (; from != to; ++from) {
    // Other values may be paths, which may contain any character.
    if ((*from)["name"] == "customized")
      add_lines(table, *from);
    else
      table.add({(*from)["name"], (*from)["value"], (*from)["from"]});
  }
  return table.text();
}

// The name of the backend is otherwise checked only when a product runs.
void remark_on_backend(Json& remarks, const plan::Loaded& loaded) {
  const std::string& wanted = loaded.settings.backend;
  if (wanted.empty()) return;
  const std::vector<std::string> names = backend_names();
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return;
  remarks.push_back(fmt::format("backend = {} ({}): there is no such backend; there are {}", wanted,
                                loaded.origin("backend"), fmt::join(names, ", ")));
}

}  // namespace

Json find_settings() {
  const plan::Loaded loaded = plan::load(plan::process_environment());
  Json settings = Json::array();
  for (const plan::Setting& setting : plan::all_settings()) {
    settings.push_back({{"name", setting.name},
                        {"value", setting.show(loaded.settings)},
                        {"from", loaded.origin(setting.name)},
                        {"variable", setting.variable}});
  }
  Json remarks = loaded.remarks;
  remark_on_backend(remarks, loaded);
  for (const std::string& remark : check_environment()) remarks.push_back(remark);
  for (const environment::EnvironmentSetting& setting : environment::environment_settings()) {
    const auto value = base::env(setting.variable.c_str());
    settings.push_back(
        {{"name", setting.name},
         {"value", value ? environment::shown_value(setting.variable, *value) : setting.usual},
         {"from", value ? setting.variable : "default"},
         {"variable", setting.variable}});
  }
  return {{"file", or_null(loaded.file)},
          {"settings", std::move(settings)},
          {"remarks", std::move(remarks)}};
}

std::string show_settings(const Json& found) {
  const std::string file = or_empty(found["file"]);
  std::string text = file.empty() ? std::string("PLAIT_CONFIG names no file.\n\n")
                                  : "Settings from " + file + " and the environment.\n\n";
  const Json& settings = found["settings"];
  const auto of_environment = settings.end() - std::ssize(environment::environment_settings());
  text += lines_of(settings.begin(), of_environment, "setting") + '\n';
  text += lines_of(of_environment, settings.end(), "environment only");
  for (const Json& remark : found["remarks"]) text += '\n' + remark.get<std::string>() + '\n';
  return text;
}

}  // namespace plait::cli
