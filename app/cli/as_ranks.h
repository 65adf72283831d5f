// Starts, or joins, the ranks with which a verb measures.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "cli/verbs.h"
#include "plait/communicator.h"

namespace plait::cli {

class Options;

// The ranks on which a verb measures.
struct RankOptions {
  std::string ranks = {};      // as typed; empty: as many as a launcher has started, or two
  std::string transport = {};  // empty: the best
  int threads = 0;             // of each rank; 0: its share of the cores
};
// `threads`: the default of --threads, in words.
void add_options(Options& options, RankOptions& ranks, const std::string& names = "--ranks",
                 const std::string& threads = "its share of the cores");

struct RanksRequest {
  int ranks;
  const std::string& transport;  // empty: the best
};

// Parses --ranks. Without a value: the number that a launcher has started, or two. Refuses a number
// other than the launcher's if its processes are the ranks.
int read_ranks(std::string_view option, const std::string& text, const std::string& transport);
void check_started(std::string_view what, int ranks, const std::string& transport);

// Runs `body` on every rank, and returns rank 0's exit status. The ranks are threads if that is the
// transport. Otherwise this process is a rank if a launcher has started it; if none has, this
// command is started again once per rank, with the same words. `command` begins with the verb.
int as_ranks(const RanksRequest& request, Words command,
             base::FunctionRef<int(Communicator&)> body);

// True if a run was ended from outside, by Ctrl-C or SIGTERM.
bool was_told_to_end(int status);

// The exit status of a verb whose ranks ended with `status`: a rank that a signal killed counts as
// a lost rank.
int status_of_ranks(int status);

}  // namespace plait::cli
