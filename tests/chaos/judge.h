// Whether what a survivor said is what the reliability contract promises.
#pragma once

#include "chaos/round.h"

namespace plait::chaos {

struct Ending {
  base::Nanoseconds gone;  // when the victim went
  bool connected;          // whether it had joined the group by then
  bool multiplied;         // whether it was in an operator then
};

// How long after the victim's end a survivor may take.
base::Nanoseconds patience(const Scene& scene, const Ending& ending);

// What is wrong with a report; empty: nothing. `all` are the survivors' reports.
std::string complaint(const Scene& scene, const Ending& ending, const Report& report,
                      const std::vector<Report>& all);

}  // namespace plait::chaos
