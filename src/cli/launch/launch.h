// What plait run has been asked to do.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/launch/seats.h"

namespace plait::cli {

struct Launch {
  std::string path;                // the program
  std::vector<std::string> words;  // the command, as the user wrote it
  std::vector<Seat> seats;         // one for each rank
  bool prefix = false;
  bool verbose = false;
  base::Nanoseconds limit = 0;                    // for the whole run; 0: none
  base::Nanoseconds grace = 5 * base::kSecond;    // from being asked to end to being killed
  base::Nanoseconds linger = 10 * base::kSecond;  // from a rank's failure to the others' end
};

}  // namespace plait::cli
