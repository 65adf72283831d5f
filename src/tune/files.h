// The plan cache and the profile beside it, as automatic_plans() takes them.
#pragma once

#include <optional>
#include <string>

#include "plait/tune.h"

namespace plait::tune {

struct Files {
  std::string path;                  // of the cache; empty: none is kept
  std::optional<std::string> cache;  // their texts, where there are any
  std::optional<std::string> profile;
  bool online = false;
  std::string refusal;     // automatic_plans() raises this
  std::string left_alone;  // why a cache that nobody has named is neither read nor kept
};

// What is wrong with them is returned, and not thrown: all ranks are told before anybody throws. A
// cache that nobody has named, which may be of another release or of another machine with the same
// home, is left alone.
Files read_files(const AutomaticOptions& options, const std::string& machine);

}  // namespace plait::tune
