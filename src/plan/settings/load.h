// Settings together with where each of them came from (see plait/settings.h).
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
  std::map<std::string_view, std::string> origins;  // "plait.toml:3", "PLAIT_PLAN"; by name, where
                                                    // it isn't the default
  std::string file;                                 // that was read; empty: none
  std::vector<std::string> remarks;                 // about what was understood but means nothing

  // "default" too.
  std::string origin(std::string_view setting) const;
};

// The value of a variable; an empty one counts as unset.
using Environment = std::function<std::optional<std::string>(const char*)>;

// That of this process.
Environment process_environment();

// The file that PLAIT_CONFIG names, and then the other variables.
Loaded load(const Environment& environment);

// A text as if it were that file, and then the variables.
Loaded load(std::string_view toml, const std::string& file, const Environment& environment);

}  // namespace plait::plan
