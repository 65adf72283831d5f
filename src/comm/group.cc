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

}  // namespace plait::comm
