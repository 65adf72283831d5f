// Where the ranks come from that a verb measures with.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "cli/verbs.h"
#include "plait/communicator.h"

namespace plait::cli {

struct RanksWish {
  int ranks;
  const std::string& transport;  // empty: the best
};

// Runs `body` as every rank, and answers with its exit status on rank 0: as threads, where that is
// the transport; as the rank that this process is, where a launcher has started it; or else in
// ranks that this very command, of these words, starts.
int as_ranks(const RanksWish& wish, Words command, base::FunctionRef<int(Communicator&)> body);

}  // namespace plait::cli
