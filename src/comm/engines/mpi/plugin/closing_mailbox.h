// A mailbox that its rank has destroyed, until all the others have done so too.
//
// The ranks don't do it at the same moment, and chunks that will not be read may still be on their
// way; a synchronous send ends only when it is received. Each rank therefore goes on receiving
// until every other has said that it has finished sending; after that nothing can come, the
// receives are cancelled, and all is freed. Where the group has failed no rank waits for another.
#pragma once

#include <memory>

#include "comm/engines/mpi/plugin/channels.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/mpi_group.h"

namespace plait::comm::mpi {

class ClosingMailbox final : public DeferredRelease {
 public:
  ClosingMailbox(std::shared_ptr<MpiGroup> group, std::unique_ptr<Channels> channels);
  bool is_done() override;

 private:
  bool is_closed();

  std::shared_ptr<MpiGroup> group_;
  std::unique_ptr<Channels> channels_;
  int number_;
  bool said_ = false;
  bool cancelled_ = false;
};

}  // namespace plait::comm::mpi
