// The plan cache and its profile, as automatic_plans() reads them.
#pragma once

#include <optional>
#include <string>

#include "plait/tune.h"

namespace plait::tune {

struct Files {
  std::string path = {};                  // of the cache; empty: there is none
  std::optional<std::string> cache = {};  // the texts of the files, if they exist
  std::optional<std::string> profile = {};
  std::optional<bool> online = {};  // empty: as suits the place of the ranks
  std::string refusal = {};         // automatic_plans() throws this
  std::string left_alone = {};      // why the default cache is neither read nor written
};

// Errors are returned, not thrown, so that all ranks learn of them before any rank throws. A
// default cache that can't be used is ignored: it may belong to another release, or to another
// machine with the same home directory.
Files read_files(const AutomaticOptions& options, const std::string& machine);

}  // namespace plait::tune
