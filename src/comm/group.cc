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
  const Operation operation = awaited.tag.operation;
  if (operation == Operation::make_mailbox || operation == Operation::split) {
    const std::string who = base::sentence(name(operation), ": rank ", rank);
    if (awaited.peer == rank) return who + " has met the others";
    return base::sentence(who, " waits for rank ", awaited.peer, " to join");
  }
  return base::sentence(name(operation), ": rank ", rank, " waits for chunk ", awaited.tag.chunk,
                        " from rank ", awaited.peer);
}

Error seen_from_parent(const Error& error, const std::vector<int>& members) {
  const int there = error.culprit();
  if (there < 0 || there >= static_cast<int>(members.size())) return error;
  return {error.code(),
          base::sentence("split: rank ", members[there], ", rank ", there,
                         " of the new group: ", error.what()),
          members[there]};
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
