#include "comm/mapped/mapped_mailbox.h"

#include <utility>

namespace plait::comm {

MappedMailbox::MappedMailbox(std::shared_ptr<MappedGroup> group, const MailboxDesc& desc,
                             Rendezvous& rendezvous, const Rendezvous::Watch& watch)
    : MailboxBase(*group, desc),
      group_(std::move(group)),
      channels_(desc, group_->rank(),
                rendezvous.share(MappedChannels::bytes_for(desc, group_->world()), describe(desc),
                                 watch)) {}

bool MappedMailbox::vacant(int peer, int slot) {
  check_channel("vacant", peer, slot);
  return channels_.has_room(peer, slot) || no_room(peer, slot);
}

std::byte* MappedMailbox::outbox(int peer, int slot) {
  check_channel("outbox", peer, slot);
  if (!channels_.has_room(peer, slot)) wait_vacant(peer, slot);
  return channels_.outbox(peer, slot);
}

void MappedMailbox::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  check_channel("post", peer, slot);
  check_bytes(slot, bytes);
  if (!channels_.has_room(peer, slot)) wait_vacant(peer, slot);
  channels_.post(peer, slot, tag, bytes);
  group_->ring(peer);
  note_move();
}

bool MappedMailbox::arrived(int source, int slot, const Tag& tag) {
  check_channel("arrived", source, slot);
  if (!channels_.has_come(source, slot)) return not_yet(source, slot, tag);
  const Tag& came = channels_.tag(source, slot);
  if (came != tag) [[unlikely]]
    refuse_tag(source, came, tag);
  return true;
}

const std::byte* MappedMailbox::inbox(int source, int slot) {
  check_channel("inbox", source, slot);
  check_arrived("inbox", channels_.has_come(source, slot), source, slot);
  return channels_.inbox(source, slot);
}

std::byte* MappedMailbox::answer_box(int source, int slot) {
  check_channel("answer_box", source, slot);
  return channels_.inbox(source, slot);
}

const std::byte* MappedMailbox::answer(int peer, int slot) {
  check_channel("answer", peer, slot);
  return channels_.answer(peer, slot);
}

std::size_t MappedMailbox::inbox_bytes(int source, int slot) {
  check_channel("inbox_bytes", source, slot);
  check_arrived("inbox_bytes", channels_.has_come(source, slot), source, slot);
  return channels_.bytes(source, slot);
}

void MappedMailbox::release(int source, int slot) {
  check_channel("release", source, slot);
  check_arrived("release", channels_.has_come(source, slot), source, slot);
  channels_.release(source, slot);
  group_->ring(source);
  note_move();
}

}  // namespace plait::comm
