// What ranks tell each other so that all come to the same decisions. Everything here is collective.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/communicator.h"

namespace plait::tune {

// The largest of what the ranks have: their clocks differ, their durations don't.
double slowest(double nanoseconds, Communicator& comm);

// Everybody's text, by rank.
std::vector<std::string> gather_text(const std::string& mine, Communicator& comm);

// The least that any rank has.
int least(int mine, Communicator& comm);

// The text that all ranks go by: what those have that have one. Error{mismatch} names two ranks
// whose `what` differ.
std::optional<std::string> agree_on(std::string_view what, const std::optional<std::string>& mine,
                                    Communicator& comm);

}  // namespace plait::tune
