// The job as its ranks see it once they are connected: hosts, and how each peer is reached.
#pragma once

#include "cli/info/show.h"

namespace plait::cli {

// Collective: joins the other ranks of the launcher. Hosts are sorted by their first ranks. The
// link is the one between several hosts, or null.
Json meet_ranks();

std::string show_meeting(const Json& meeting);

}  // namespace plait::cli
