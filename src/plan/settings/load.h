// The settings, and where each of them was set (see plait/settings.h).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/settings.h"

namespace plait::plan {

struct Loaded {
  Settings settings;
  // "plait.toml:3", "PLAIT_PLAN"; by name, without defaults
  std::map<std::string_view, std::string> origins;
  std::string file;                  // the file that was read; empty: none
  std::vector<std::string> remarks;  // about settings that were understood but have no effect

  // The place at which a setting was set: "plait.toml:3", "PLAIT_PLAN" or "default".
  std::string origin(std::string_view setting) const;
};

// The value of a variable; an empty one counts as unset.
using Environment = std::function<std::optional<std::string>(const char*)>;

// The variables of this process.
Environment process_environment();

// Loads the file that PLAIT_CONFIG names, then the other variables.
Loaded load(const Environment& environment);

// Loads a text in place of that file, then the variables.
Loaded load(std::string_view toml, const std::string& file, const Environment& environment);

}  // namespace plait::plan
