// All ranks of a group must emulate the same link, because a rank writes into each chunk when it
// arrives. Each says which with the first text of a new group.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/emulated/link_clock.h"

namespace plait::comm {

// A text with the link before it; null: none is emulated.
std::string link_and(const std::optional<LinkView>& link, const std::string& text);

// Takes the links off the texts of all ranks. Throws Error{mismatch} where they differ, the same on
// every rank.
void take_links_off(std::vector<std::string>& texts);

}  // namespace plait::comm
