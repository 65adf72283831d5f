#include "cli/bench/as_ranks.h"

#include <vector>

namespace plait::cli {

int as_ranks(const RanksWish& wish, Words command, base::FunctionRef<int(Communicator&)> body) {
  if (wish.transport == "threads") {
    int status = kDone;
    run_in_threads(wish.ranks, [&](Communicator& comm) {
      const int mine = body(comm);
      if (comm.rank() == 0) status = mine;
    });
    return status;
  }
  if (place_from_environment().launcher.empty()) {
    std::vector<std::string> launch = {"-n", std::to_string(wish.ranks), "--", "/proc/self/exe"};
    launch.insert(launch.end(), command.begin(), command.end());
    return run(launch);
  }
  Communicator comm = Communicator::connect({.transport = wish.transport});
  return body(comm);
}

}  // namespace plait::cli
