#include "comm/mpi/plugin/mpi_mailbox.h"

#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "comm/mpi/plugin/former_mailbox.h"
#include "comm/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

constexpr int kPoison = 0xA5;

}  // namespace

MpiMailbox::MpiMailbox(std::shared_ptr<MpiGroup> group, const Members& members,
                       const MailboxDesc& desc)
    : MailboxBase(*group, desc),
      group_(std::move(group)),
      channels_(std::make_unique<Channels>(members, desc)) {
  try {
    channels_->open();
  } catch (...) {
    leave_behind(std::make_unique<FormerMailbox>(group_, std::move(channels_)));
    throw;
  }
}

MpiMailbox::~MpiMailbox() {
  if (mpi_is_usable()) finish_sends();
  leave_behind(std::make_unique<FormerMailbox>(group_, std::move(channels_)));
}

// What was posted is brought to an end before this rank says that it leaves: MPI moves a send only
// while its sender calls MPI. Peers have a receive ready for every chunk, so this takes no longer
// than the peers are away from MPI; it ends early where they are gone.
void MpiMailbox::finish_sends() noexcept try {
  const Nanoseconds deadline = base::now() + group_->policy().connect_timeout;
  Nanoseconds ask_at = 0;
  for (int peer = 0; peer < group_->world(); ++peer) {
    while (!channels_->all_taken(peer) && !group_->failed() && !group_->has_left(peer) &&
           base::now() < deadline) {
      group_->listen();
      if (base::now() >= ask_at) {
        group_->interrupt_if_asked(nullptr);
        ask_at = base::now() + 10 * base::kMillisecond;
      }
      ::usleep(20);
    }
  }
} catch (...) {  // NOLINT(bugprone-empty-catch): destructors never throw
}

bool MpiMailbox::vacant(int peer, int slot) {
  check_channel("vacant", peer, slot);
  return channels_->test(channels_->outgoing(peer, slot).next()) || no_room(peer, slot);
}

std::byte* MpiMailbox::outbox(int peer, int slot) {
  check_channel("outbox", peer, slot);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  return channels_->outgoing(peer, slot).next().payload();
}

void MpiMailbox::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  check_channel("post", peer, slot);
  check_bytes(slot, bytes);
  if (!vacant(peer, slot)) wait_vacant(peer, slot);
  Channel& channel = channels_->outgoing(peer, slot);
  Staged& staged = channel.next();
  *staged.header = {.bytes = bytes, .tag = tag};
  channels_->send(staged, peer, slot);
  ++channel.count;
  note_move();
}

bool MpiMailbox::arrived(int source, int slot, const Tag& tag) {
  check_channel("arrived", source, slot);
  Staged& staged = channels_->incoming(source, slot).next();
  if (!channels_->test(staged)) return not_yet(source, slot, tag);
  if (staged.header->tag != tag) [[unlikely]]
    refuse_tag(source, staged.header->tag, tag);
  return true;
}

void MpiMailbox::check_next(int source, int slot, const Tag& tag) {
  Staged& staged = channels_->incoming(source, slot).next();
  if (!channels_->test(staged) || staged.header->tag.call != tag.call) return;
  Tag expected = tag;
  expected.chunk = staged.header->tag.chunk;
  if (staged.header->tag != expected) refuse_tag(source, staged.header->tag, expected);
}

const std::byte* MpiMailbox::inbox(int source, int slot) {
  check_channel("inbox", source, slot);
  Staged& staged = channels_->incoming(source, slot).next();
  check_arrived("inbox", staged.complete, source, slot);
  return staged.payload();
}

std::size_t MpiMailbox::inbox_bytes(int source, int slot) {
  check_channel("inbox_bytes", source, slot);
  const Staged& staged = channels_->incoming(source, slot).next();
  check_arrived("inbox_bytes", staged.complete, source, slot);
  return staged.header->bytes;
}

void MpiMailbox::release(int source, int slot) {
  check_channel("release", source, slot);
  Channel& channel = channels_->incoming(source, slot);
  Staged& staged = channel.next();
  check_arrived("release", staged.complete, source, slot);
  if (desc().poison) std::memset(staged.payload(), kPoison, desc().slot_bytes);
  ++channel.count;
  channels_->receive_into(staged);
  note_move();
}

}  // namespace plait::comm::mpi
