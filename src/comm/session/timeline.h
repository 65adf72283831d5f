// The parts of a timeline of all ranks, for code that needs another than write_timeline()'s.
#pragma once

#include <cstddef>
#include <vector>

#include "plait/communicator.h"
#include "plait/trace.h"

namespace plait::comm {

// Collective: aligns the clocks, and gives rank 0 every rank's pack, by rank; others get none.
std::vector<std::vector<std::byte>> collect_packs(Trace& trace, Communicator& comm);

}  // namespace plait::comm
