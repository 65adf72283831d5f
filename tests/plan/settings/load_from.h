// Settings from a text in place of a file, and from given variables.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "plan/settings/load.h"

namespace plait::plan {

using Variables = std::map<std::string, std::string>;

inline Loaded load_from(const std::string& toml, const Variables& variables = {}) {
  return load(toml, "f", [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

}  // namespace plait::plan
