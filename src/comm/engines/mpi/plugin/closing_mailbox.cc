#include "comm/engines/mpi/plugin/closing_mailbox.h"

#include <utility>

namespace plait::comm::mpi {

// The tag by which the first member receives names the mailbox: all know it, and that member gives
// it to nothing else.
ClosingMailbox::ClosingMailbox(std::shared_ptr<MpiGroup> group, std::unique_ptr<Channels> channels)
    : group_(std::move(group)),
      channels_(std::move(channels)),
      number_(channels_->members().first_tags.front()) {}

bool ClosingMailbox::is_done() {
  group_->listen();
  if (!cancelled_) {
    if (!group_->failed() && !is_closed()) return false;
    group_->chunks().remove(*channels_);
    channels_->cancel_receives();
    cancelled_ = true;
  }
  if (!channels_->idle()) return false;
  group_->forget(number_);
  return true;
}

bool ClosingMailbox::is_closed() {
  channels_->swallow_arrivals();
  for (int peer = 0; !said_ && peer < group_->world(); ++peer) {
    if (!channels_->all_taken(peer)) return false;
  }
  if (!said_) group_->send_closed(number_);
  said_ = true;
  return group_->all_others_have_closed(number_);
}

}  // namespace plait::comm::mpi
