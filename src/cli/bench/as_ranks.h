// Where the ranks come from that a verb measures with.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "cli/verbs.h"
#include "plait/communicator.h"

namespace plait::cli {

struct RanksWish {
  int ranks;
  const std::string& transport;  // empty: the best
};

// Of --ranks: where nothing is said as many as a launcher has started, or two. Refuses another
// number than a launcher's, where its processes are the ranks.
int read_ranks(std::string_view option, const std::string& text, const std::string& transport);
void check_started(std::string_view what, int ranks, const std::string& transport);

// Runs `body` as every rank, and answers with its exit status on rank 0: as threads, where that is
// the transport; as the rank that this process is, where a launcher has started it; or else in
// ranks that this very command, of these words, starts.
int as_ranks(const RanksWish& wish, Words command, base::FunctionRef<int(Communicator&)> body);

// Of a run that somebody ended from outside, by Ctrl-C or SIGTERM.
bool was_told_to_end(int status);

// The verb's own, where its ranks came to this one: that of a rank that a signal has killed says
// that a rank was lost.
int status_of_ranks(int status);

}  // namespace plait::cli
