// Exchanges between ranks, so that all of them make the same decisions. Every function is
// collective.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plait/communicator.h"

namespace plait::tune {

// The largest of the ranks' values. Clocks of ranks differ, but durations can be compared.
double slowest(double nanoseconds, Communicator& comm);

// The smallest of the ranks' values.
int least(int mine, Communicator& comm);

// The text that all ranks use: the one of those ranks that have one. Error{mismatch} names two
// ranks whose `what` differ.
std::optional<std::string> agree_on(std::string_view what, const std::optional<std::string>& mine,
                                    Communicator& comm);

}  // namespace plait::tune
