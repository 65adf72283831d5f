#include "comm/mpi/plugin/mpi_mailbox.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "comm/mpi/plugin/former_mailbox.h"
#include "comm/mpi/plugin/session.h"
#include "comm/patience.h"

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
// than the peers are away from MPI; it ends early where they are gone. A peer that is late fails
// the group, so that the group's other mailboxes don't wait for it as long again.
void MpiMailbox::finish_sends() noexcept try {
  if (group_->failed()) return;
  wait_until_all_is_taken();
  // The program may never make another call that could throw it.
  if (group_->failed()) std::fprintf(stderr, "plait: %s\n", group_->failure().sentence.c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "plait: at the end of a mailbox: %s\n", error.what());
} catch (...) {  // NOLINT(bugprone-empty-catch): a caller's hook ends the wait with what it throws
}

void MpiMailbox::wait_until_all_is_taken() {
  Patience patience(group_->policy());
  for (int peer; (peer = first_that_has_not_taken_all()) != Error::kNobody; ::usleep(20)) {
    const auto doing = [&] {
      return base::sentence("rank ", group_->rank(), " ends a mailbox and waits for rank ", peer,
                            " to take the last chunks");
    };
    const Nanoseconds now = base::now();
    if (patience.must_look(now, *group_)) {
      group_->look_around(doing);
    } else {
      group_->listen();
    }
    if (patience.is_over(now)) {
      group_->fail({.code = Code::timeout,
                    .culprit = peer,
                    .sentence = doing() + " for " + base::show_duration(group_->policy().timeout)});
    }
    if (group_->failed()) return;
  }
}

int MpiMailbox::first_that_has_not_taken_all() {
  for (int peer = 0; peer < group_->world(); ++peer) {
    if (!channels_->all_taken(peer) && !group_->has_left(peer)) return peer;
  }
  return Error::kNobody;
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
