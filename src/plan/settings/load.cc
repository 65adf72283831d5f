#include "plan/settings/load.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/nearest.h"
#include "base/read_file.h"
#include "plan/settings/coc.h"
#include "plan/settings/table.h"
#include "plan/settings/toml.h"

namespace plait::plan {
namespace {

constexpr std::size_t kLongestFile = 64 << 10;
constexpr std::string_view kCocTable = "coc_cfgs";

// Options on command lines have hyphens where keys in files have underscores.
std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<std::string> names_of_a_file() {
  std::vector<std::string> names = coc_names();
  names.emplace_back(kCocTable);
  for (const Setting& setting : all_settings()) {
    names.emplace_back(setting.name);
    if (!setting.coc_name.empty()) names.emplace_back(setting.coc_name);
  }
  return names;
}

class Loader {
 public:
  explicit Loader(Loaded& loaded) : loaded_(loaded) {}

  void take_file(const RawSetting::Entries& entries) {
    CocSwitches switches;
    take_entries(entries, switches);
    const auto choice = switches.choice();
    if (!choice) return;
    if (loaded_.origins.contains("plan"))
      choice->said.refuse(": a plan is set at ", loaded_.origin("plan"), " too");
    choose(*choice);
    if (choice->of_all) leave_out_shapes(choice->said);
  }

  void take_environment(const Environment& environment) {
    CocSwitches switches;
    for (const auto& [variable, name] : kCocVariables) {
      if (auto text = environment(variable))
        switches.take(name, RawSetting::in_variable(variable, std::move(*text)));
    }
    if (const auto choice = switches.choice()) choose(*choice);
    for (const Setting& setting : all_settings()) {
      const std::string variable(setting.variable);
      if (auto text = environment(variable.c_str()))
        take(setting, RawSetting::in_variable(variable, std::move(*text)));
    }
  }

 private:
  void take_entries(const RawSetting::Entries& entries, CocSwitches& switches) {
    for (const RawSetting& entry : entries) {
      const std::string name = underscored(entry.name());
      if (name == kCocTable) {
        take_entries(entry.entries(), switches);
        continue;
      }
      refuse_second(name, entry);
      take_entry(name, entry, switches);
    }
  }

  void take_entry(const std::string& name, const RawSetting& entry, CocSwitches& switches) {
    if (const Setting* setting = find_setting(name)) {
      take(*setting, entry);
    } else if (const auto reason = why_meaningless(name); !reason.empty()) {
      loaded_.remarks.push_back(
          base::sentence(entry.origin(), ": ", name, " has no effect: ", reason));
    } else if (!switches.take(name, entry) && !take_rival(name, entry)) {
      base::fail(Code::invalid_argument, entry.origin(), ": there is no setting ",
                 on_one_line(entry.name()), base::did_you_mean(name, names_of_a_file()));
    }
  }

  // A setting may have several names, at the top level and in CoC's table.
  void refuse_second(const std::string& name, const RawSetting& entry) {
    const Setting* setting = find_setting(name);
    const auto [before, is_first] =
        seen_.emplace(setting == nullptr ? name : std::string(setting->name), entry.origin());
    if (!is_first) entry.refuse(": it is set at ", before->second, " already");
  }

  void take(const Setting& setting, const RawSetting& raw) {
    setting.read(raw, loaded_.settings);
    loaded_.origins[setting.name] = raw.origin();
  }

  void choose(const CocSwitches::Choice& choice) {
    loaded_.settings.plan = choice.plan;
    loaded_.origins["plan"] = choice.said.origin();
  }

  void leave_out_shapes(const RawSetting& by) {
    if (loaded_.settings.customized.empty()) return;
    std::string& origin = loaded_.origins["customized"];
    loaded_.remarks.push_back(base::sentence(origin, ": customized has no effect: ", by.name(),
                                             " at ", by.origin(), " makes all shapes serial"));
    loaded_.settings.customized.clear();
    origin = by.origin();
  }

  Loaded& loaded_;
  std::map<std::string, std::string> seen_;
};

// Replaces a leading ~/, because no shell has done so.
void find_home(std::string& path, const Environment& environment) {
  if (!path.starts_with("~/")) return;
  const auto home = environment("HOME");
  PLAIT_CHECK(home, "plan_cache = ", path, ": HOME is not set");
  path.replace(0, 1, *home);
}

std::string usual_cache(const Environment& environment) {
  if (const auto caches = environment("XDG_CACHE_HOME"); caches && caches->starts_with('/'))
    return *caches + "/plait/plans";
  const auto home = environment("HOME");
  return home ? *home + "/.cache/plait/plans" : std::string();
}

}  // namespace

std::string Loaded::origin(std::string_view setting) const {
  const auto found = origins.find(setting);
  return found == origins.end() ? "default" : found->second;
}

Environment process_environment() {
  return [](const char* variable) { return base::env(variable); };
}

Loaded load(const Environment& environment) {
  const auto file = environment("PLAIT_CONFIG");
  if (!file) return load("", "", environment);
  std::string text;
  try {
    text = base::read_file(*file, kLongestFile);
  } catch (const Error& error) {
    base::fail(error.code(), "PLAIT_CONFIG: ", error.what());
  }
  return load(text, *file, environment);
}

Loaded load(std::string_view toml, const std::string& file, const Environment& environment) {
  Loaded loaded = {.settings = {}, .origins = {}, .file = file, .remarks = {}};
  loaded.settings.plan_cache = usual_cache(environment);
  Loader loader(loaded);
  loader.take_file(read_toml(toml, file));
  loader.take_environment(environment);
  find_home(loaded.settings.plan_cache, environment);
  return loaded;
}

}  // namespace plait::plan

namespace plait {

Settings load_settings() { return plan::load(plan::process_environment()).settings; }

Settings load_settings(std::string_view toml, std::string_view file) {
  return plan::load(toml, std::string(file), plan::process_environment()).settings;
}

Settings parse_settings(std::string_view toml, std::string_view file) {
  const auto nothing = [](const char*) { return std::optional<std::string>(); };
  return plan::load(toml, std::string(file), nothing).settings;
}

}  // namespace plait
