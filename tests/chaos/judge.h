// Checks whether a survivor's report conforms to the reliability contract.
#pragma once

#include "chaos/round.h"

namespace plait::chaos {

struct Ending {
  base::Nanoseconds gone;  // when the victim ended
  bool connected;          // the victim had joined the group
  bool multiplied;         // the victim was in an operator
};

// The longest time that a survivor may take after the victim's end.
base::Nanoseconds patience(const Scene& scene, const Ending& ending);

// The error in a report; empty: none. `all` are the survivors' reports.
std::string complaint(const Scene& scene, const Ending& ending, const Report& report,
                      const std::vector<Report>& all);

}  // namespace plait::chaos
