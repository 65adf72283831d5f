#include "comm/group.h"

#include "base/check.h"

namespace plait::comm {

void Group::raise() const {
  const Failure why = failure();
  throw Error(why.code, why.sentence, why.culprit);
}

std::string describe(const Awaited& awaited, int rank) {
  if (awaited.room) {
    return base::sentence("outbox: rank ", rank, " waits for rank ", awaited.peer,
                          " to release a chunk");
  }
  return base::sentence(name(awaited.tag.operation), ": rank ", rank, " waits for chunk ",
                        awaited.tag.chunk, " from rank ", awaited.peer);
}

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
