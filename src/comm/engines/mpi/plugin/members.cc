#include "comm/engines/mpi/plugin/members.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

int Members::member_of(int process) const {
  return static_cast<int>(std::find(processes.begin(), processes.end(), process) -
                          processes.begin());
}

// Memory ordering: relaxed; it is a proposal.
int propose_comm_dup() {
  static std::atomic<unsigned> next{0};
  return 1 + static_cast<int>(next.fetch_add(1, std::memory_order_relaxed) % (kCommDups - 1));
}

// Memory ordering: relaxed; the numbers must differ, and nothing else hangs on them.
int reserve_tags(int count) {
  static std::atomic<std::int64_t> next{kConnectTag + 1};
  const std::int64_t first = next.fetch_add(count, std::memory_order_relaxed);
  if (first + count - 1 > highest_tag()) {
    base::fail(Code::system, "this MPI library has ", highest_tag(), " tags, too few for another ",
               count, ": fewer or smaller mailboxes are needed");
  }
  return static_cast<int>(first);
}

}  // namespace plait::comm::mpi
