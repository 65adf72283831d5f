#include "comm/engines/mpi/plugin/mpi_slots.h"

#include <unistd.h>

#include <cstdio>

#include "base/check.h"
#include "base/text.h"
#include "comm/core/patience.h"
#include "comm/engines/mpi/plugin/closing_mailbox.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

MpiSlots::MpiSlots(std::shared_ptr<MpiGroup> group, const Members& members, const MailboxDesc& desc)
    : group_(std::move(group)), channels_(std::make_unique<Channels>(members, desc)) {
  try {
    channels_->open();
    group_->chunks().add(*channels_);
  } catch (...) {
    release_later(std::make_unique<ClosingMailbox>(group_, std::move(channels_)));
    throw;
  }
}

MpiSlots::~MpiSlots() {
  if (mpi_is_usable()) finish_sends();
  release_later(std::make_unique<ClosingMailbox>(group_, std::move(channels_)));
}

// All sends are brought to an end before this rank says that it leaves: MPI moves a send only while
// its sender calls MPI. Peers have a receive ready for every chunk, so this takes no longer than
// the peers are away from MPI; it ends early where they are gone. A peer that is late fails the
// group, so that the group's other mailboxes don't wait for it as long again.
void MpiSlots::finish_sends() noexcept try {
  if (group_->failed()) return;
  wait_until_all_is_taken();
  // The program may never make another call that could throw it.
  if (group_->failed()) std::fprintf(stderr, "plait: %s\n", group_->failure().sentence.c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "plait: at the end of a mailbox: %s\n", error.what());
} catch (...) {  // NOLINT(bugprone-empty-catch): a caller's hook ends the wait with what it throws
}

void MpiSlots::wait_until_all_is_taken() {
  Patience patience(group_->policy());
  for (int peer; (peer = first_that_has_not_taken_all()) != Error::kNoRank; ::usleep(20)) {
    const auto doing = [&] {
      return base::sentence("rank ", group_->rank(), " ends a mailbox and waits for rank ", peer,
                            " to take the last chunks");
    };
    const Nanoseconds now = base::now();
    if (patience.must_poll_peers(now, *group_)) {
      group_->poll_peers(doing);
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

int MpiSlots::first_that_has_not_taken_all() {
  for (int peer = 0; peer < group_->world(); ++peer) {
    if (!channels_->all_taken(peer) && !group_->has_left(peer)) return peer;
  }
  return Error::kNoRank;
}

Vacancy MpiSlots::outbox(int peer, int slot) {
  Staged& staged = channels_->outgoing(peer, slot).next();
  if (!channels_->test(staged)) return {};
  return {.place = staged.payload()};
}

bool MpiSlots::post(int peer, int slot, const Tag& tag, std::size_t bytes) {
  Channel& channel = channels_->outgoing(peer, slot);
  Staged& staged = channel.next();
  if (!channels_->test(staged)) return false;
  *staged.header = {.bytes = bytes, .tag = tag};
  group_->chunks().note_sent(peer);
  channels_->send(staged, peer, slot);
  ++channel.count;
  return true;
}

Arrival MpiSlots::inbox(int source, int slot) {
  Staged& staged = channels_->incoming(source, slot).next();
  if (!channels_->test(staged)) return {};
  return {.data = staged.payload(), .bytes = staged.header->bytes, .tag = &staged.header->tag};
}

bool MpiSlots::release(int source, int slot) {
  Channel& channel = channels_->incoming(source, slot);
  Staged& staged = channel.next();
  if (!channels_->test(staged)) return false;
  ++channel.count;
  channels_->receive_into(staged);
  return true;
}

}  // namespace plait::comm::mpi
