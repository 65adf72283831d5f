#include "comm/mapped/rendezvous.h"

#include "base/check.h"

namespace plait::comm {

void check_same_purpose(int rank, const std::string& mine, int peer, const std::string& theirs) {
  if (mine == theirs) return;
  // Every rank finds the same two: the lower rank is named first by both.
  const bool first = rank < peer;
  throw Error(
      Code::mismatch,
      base::sentence("rank ", first ? rank : peer, " makes a ", first ? mine : theirs,
                     " while rank ", first ? peer : rank, " makes a ", first ? theirs : mine),
      peer);
}

}  // namespace plait::comm
