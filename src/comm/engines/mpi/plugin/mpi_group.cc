#include "comm/engines/mpi/plugin/mpi_group.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/text.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

using base::sentence;

namespace {

// How long a notice may take to leave. What is stuck then is stuck with a peer that does not
// listen.
constexpr Nanoseconds kSending = 200 * base::kMillisecond;

// How long a farewell may take when its sender's process is seen to have ended.
constexpr Nanoseconds kLastWords = 50 * base::kMillisecond;

class ClosingGroup final : public DeferredRelease {
 public:
  explicit ClosingGroup(std::shared_ptr<MpiGroup> group) : group_(std::move(group)) {}
  bool is_done() override {
    group_->listen();
    return group_->has_stopped_listening();
  }

 private:
  std::shared_ptr<MpiGroup> group_;
};

}  // namespace

MpiGroup::MpiGroup(Members members, std::shared_ptr<const LocalProcesses> local_processes,
                   const WaitPolicy& policy)
    : Group(members.me, members.size(), policy),
      members_(std::move(members)),
      local_processes_(std::move(local_processes)),
      left_at_(world()),
      has_told_mismatch_(world()),
      chunks_(world()),
      set_ups_(world()),
      sent_at_farewell_(world()) {
  expect_notice();
}

void MpiGroup::expect_notice() {
  const auto held = hold_mpi();
  if (stopped_) return;
  check_mpi(MPI_Irecv(&heard_, sizeof(heard_), MPI_BYTE, MPI_ANY_SOURCE,
                      members_.my_tag(kNoticeTag), members_.for_agreements(), &hearing_),
            "MPI_Irecv");
}

void MpiGroup::split_off(const std::shared_ptr<MpiGroup>& parent, const std::vector<int>& ranks) {
  parent_ = parent;
  descend_from(parent, ranks);
}

void MpiGroup::listen() {
  if (parent_ != nullptr) parent_->listen();
  for (;;) {
    MPI_Status status;
    {
      const auto held = hold_mpi();
      int there = 0;
      // Null while another thread of this rank hears a notice.
      if (stopped_ || hearing_ == MPI_REQUEST_NULL) return;
      check_mpi(MPI_Test(&hearing_, &there, &status), "MPI_Test");
      if (there == 0) return;
    }
    receive(heard_, members_.member_of(status.MPI_SOURCE));
    expect_notice();
  }
}

bool MpiGroup::has_stopped_listening() {
  if (!failed() && !all_others_have_left()) return false;
  const auto held = hold_mpi();
  if (!stopped_ && hearing_ != MPI_REQUEST_NULL) MPI_Cancel(&hearing_);
  stopped_ = true;
  int done = 0;
  check_mpi(MPI_Test(&hearing_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

// Memory ordering: how much a peer had sent is written before left_at_ is set (release): a thread
// that sees it set (acquire, in has_left()) reads it.
void MpiGroup::receive(const Notice& notice, int peer) {
  const bool is_failure = notice.kind <= Notice::Kind::abort;
  if (is_failure && notice.code == Code::mismatch)
    has_told_mismatch_[peer].store(true, std::memory_order_release);
  switch (notice.kind) {
    case Notice::Kind::abort:
      adopt(End::abort, notice);
      [[fallthrough]];
    case Notice::Kind::failure:
      return adopt(End::failure, notice);
    case Notice::Kind::report:
      return record_for(peer, notice);
    case Notice::Kind::set_up: {
      const std::lock_guard lock(set_ups_mutex_);
      return set_ups_[peer].push_back({.call = notice.call, .chunks = notice.chunks});
    }
    case Notice::Kind::farewell:
      sent_at_farewell_[peer] = notice.chunks;
      return left_at_[peer].store(base::now(), std::memory_order_release);
    case Notice::Kind::closing: {
      const std::lock_guard lock(closings_mutex_);
      auto& closed = closings_[notice.mailbox];
      closed.resize(world());
      closed[peer] = true;
    }
  }
}

bool MpiGroup::all_others_have_left() const {
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank() && !has_left(peer)) return false;
  }
  return true;
}

bool MpiGroup::is_long_gone(int peer) const {
  const Nanoseconds left_at = left_at_[peer].load(std::memory_order_acquire);  // pairs with hear()
  return left_at != 0 && base::now() - left_at > kUnderWay;
}

void MpiGroup::adopt(End end, const Notice& notice) noexcept {
  const Failure failure = {
      .code = notice.code, .culprit = notice.culprit, .sentence = notice.sentence.data()};
  if (records_.add(end, failure)) note_failure();
}

// A rank that hears of an abort records it as the failure as well: every rank knows an abort's own
// failure.
void MpiGroup::end(End end, const Failure& failure) noexcept {
  if (has_ended(end)) return;
  const Notice notice =
      notice_of(end == End::abort ? Notice::Kind::abort : Notice::Kind::failure, failure);
  // The others hear it from this rank too: by that they know that it brings nothing more.
  if (end == End::failure && report(failure))
    return announce_all(notice_of(Notice::Kind::failure, records_.get(End::failure)));
  if (end == End::abort) adopt(End::failure, notice);
  adopt(end, notice);
  announce_all(notice);
}

bool MpiGroup::report(const Failure& failure) noexcept try {
  const Notice notice = notice_of(Notice::Kind::report, failure);
  const auto wait = [&] {
    listen();
    if (!has_ended(End::failure)) ::usleep(20);
  };
  return is_recorded_elsewhere(
      failure, {.is_there = [&](int peer) { return !has_left(peer) && members_.may_send_to(peer); },
                .report = [&](int peer) { send(peer, notice); },
                .wait = wait});
} catch (const std::exception&) {  // MPI has ended meanwhile
  return false;
}

// If an earlier failure stands, all but this peer know it.
void MpiGroup::record_for(int peer, Notice notice) noexcept {
  notice.kind = Notice::Kind::failure;
  if (!has_ended(End::failure)) {
    adopt(End::failure, notice);
    return announce_all(notice);
  }
  send(peer, notice_of(Notice::Kind::failure, records_.get(End::failure)));
}

void MpiGroup::leave() noexcept {
  if (!failed() && mpi_is_usable()) announce_all({.kind = Notice::Kind::farewell});
}

void MpiGroup::send_closed(int mailbox) noexcept {
  announce_all({.kind = Notice::Kind::closing, .mailbox = mailbox});
}

bool MpiGroup::all_others_have_closed(int mailbox) const {
  const std::lock_guard lock(closings_mutex_);
  const auto closed = closings_.find(mailbox);
  for (int peer = 0; peer < world(); ++peer) {
    const bool has_closed = closed != closings_.end() && closed->second[peer];
    if (peer != rank() && !has_closed && !has_left(peer)) return false;
  }
  return true;
}

void MpiGroup::forget(int mailbox) noexcept {
  const std::lock_guard lock(closings_mutex_);
  closings_.erase(mailbox);
}

void MpiGroup::announce_all(const Notice& notice) noexcept {
  std::vector<int> peers;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) peers.push_back(peer);
  }
  send(peers, notice);
}

void MpiGroup::send(const std::vector<int>& peers, Notice notice) noexcept try {
  if (!mpi_is_usable()) return;
  auto send = std::make_unique<NoticeSend>(members_);
  for (const int peer : peers) {
    notice.chunks = chunks_.sent_to(peer);
    send->start(peer, notice);
  }
  const Nanoseconds deadline = base::now() + kSending;
  while (!send->is_done() && base::now() < deadline) ::usleep(20);
  mpi::release_later(std::move(send));
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): MPI has ended meanwhile
}

void MpiGroup::examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) {
  if (awaited == nullptr) {
    poll_peers();
  } else {
    poll_peers([&] { return describe(*awaited, rank()); });
  }
  raise_if_failed();
  if (awaited == nullptr || awaited->peer == Error::kNoRank) return;
  const bool is_chunk_of_a_call = !awaited->room && awaited->tag.operation != Operation::custom;
  if (is_chunk_of_a_call && awaited->peer != rank()) compare_set_ups(*awaited, ready);
  if (!is_long_gone(awaited->peer) || !has_all_it_sent(awaited->peer) || ready()) return;
  fail_and_raise(
      {Code::peer_lost, awaited->peer,
       sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " has left the group")});
}

void MpiGroup::poll_peers() {
  poll_peers([&] { return sentence("rank ", rank(), " polls its peers"); });
}

void MpiGroup::poll_peers(base::FunctionRef<std::string()> doing) {
  release_finished();
  listen();
  for (int peer = 0; peer < world(); ++peer) {
    const int process = members_.processes[peer];
    if (peer == rank() || has_left(peer) || !local_processes_->has_ended(process)) continue;
    // It may have ended in good order: then its farewell is here or comes at once.
    const Nanoseconds end = base::now() + kLastWords;
    while (base::now() < end && !has_left(peer)) listen();
    if (has_left(peer)) continue;
    fail({Code::peer_lost, peer,
          sentence(doing(), "; rank ", peer, " (", local_processes_->describe(process),
                   ") has died")});
  }
}

void MpiGroup::give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) {
  if (ready()) return;
  fail_and_raise(
      {Code::timeout, awaited.peer == Error::kNoRank ? rank() : awaited.peer,
       sentence(describe(awaited, rank()), " for ", base::show_duration(policy().timeout))});
}

// No peer wakes this rank: MPI must be called for anything to move. 20 µs keep the core mostly
// free, and are little beside a network's latency.
void MpiGroup::sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) {
  while (base::now() < until) {
    listen();
    if (failed() || ready()) return;
    ::usleep(20);
  }
}

void release_later(std::shared_ptr<MpiGroup> group) noexcept {
  release_later(std::make_unique<ClosingGroup>(std::move(group)));
}

}  // namespace plait::comm::mpi
