// The options of plait run.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/launch/cpu_binding.h"

namespace plait::cli {

struct Launch {
  std::string path;                  // the path of the program
  std::vector<std::string> words;    // the command as the user typed it
  std::vector<CpuBinding> bindings;  // one for each rank
  bool prefix = false;
  bool verbose = false;
  base::Nanoseconds limit = 0;                  // for the whole run; 0: none
  base::Nanoseconds grace = 5 * base::kSecond;  // from the request to end until SIGKILL
  // from a rank's failure until the others are ended
  base::Nanoseconds linger = 10 * base::kSecond;
};

}  // namespace plait::cli
