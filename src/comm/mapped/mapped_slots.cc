#include "comm/mapped/mapped_slots.h"

#include <utility>

#include "comm/core/mailbox.h"

namespace plait::comm {

MappedSlots::MappedSlots(std::shared_ptr<MappedGroup> group, const MailboxDesc& desc,
                         Rendezvous& rendezvous, const Rendezvous::Watch& watch)
    : group_(std::move(group)),
      channels_(desc, group_->rank(),
                rendezvous.share(MappedChannels::bytes_for(desc, group_->world()), describe(desc),
                                 watch)) {}

Vacancy MappedSlots::outbox(int peer, int slot) {
  if (!channels_.has_room(peer, slot)) return {};
  return {.place = channels_.outbox(peer, slot)};
}

bool MappedSlots::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  if (!channels_.has_room(peer, slot)) return false;
  channels_.post(peer, slot, tag, bytes);
  group_->ring(peer);
  return true;
}

Arrival MappedSlots::inbox(int source, int slot) { return channels_.arrival(source, slot); }

bool MappedSlots::release(int source, int slot) {
  if (!channels_.release(source, slot)) return false;
  group_->ring(source);
  return true;
}

}  // namespace plait::comm
