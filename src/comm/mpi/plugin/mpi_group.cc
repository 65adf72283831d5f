#include "comm/mpi/plugin/mpi_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>

#include "base/check.h"
#include "base/text.h"
#include "comm/mpi/plugin/deferred_release.h"
#include "comm/mpi/plugin/session.h"

namespace plait::comm::mpi {

using base::sentence;

namespace {

// How long a notice may take to leave. What is stuck then is stuck with a peer that does not
// listen.
constexpr Nanoseconds kSending = 200 * base::kMillisecond;

// How long a farewell may take when its sender's process is seen to have ended.
constexpr Nanoseconds kLastWords = 50 * base::kMillisecond;

// A notice on its way to all other ranks.
class NoticeSend final : public DeferredRelease {
 public:
  NoticeSend(const Notice& notice, const Members& members)
      : notice_(notice), sends_(members.size(), MPI_REQUEST_NULL) {
    const std::size_t bytes = offsetof(Notice, sentence) + std::strlen(notice.sentence.data()) + 1;
    const auto held = hold_mpi();
    for (int peer = 0; peer < members.size(); ++peer) {
      if (peer == members.me || !members.may_send_to(peer)) continue;
      // A peer that can't be told can't be helped.
      MPI_Isend(&notice_, static_cast<int>(bytes), MPI_BYTE, members.processes[peer],
                members.tag_of(peer, kNoticeTag), members.for_agreements(), &sends_[peer]);
    }
  }

  bool is_done() override {
    const auto held = hold_mpi();
    int done = 0;
    MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

 private:
  Notice notice_;
  std::vector<MPI_Request> sends_;
};

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
      left_at_(world()) {
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
    hear(heard_, members_.member_of(status.MPI_SOURCE));
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

// Memory ordering: all that a peer sent before its farewell is in MPI's queues when left_at_ is set
// (release): a thread that sees it set (acquire, in has_left()) and then asks MPI finds it there.
void MpiGroup::hear(const Notice& notice, int peer) {
  switch (notice.kind) {
    case Notice::Kind::abort:
      adopt(End::abort, notice);
      [[fallthrough]];
    case Notice::Kind::failure:
      return adopt(End::failure, notice);
    case Notice::Kind::farewell:
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
  Notice notice = {.kind = end == End::abort ? Notice::Kind::abort : Notice::Kind::failure,
                   .code = failure.code,
                   .culprit = failure.culprit};
  const std::size_t length = std::min(failure.sentence.size(), notice.sentence.size() - 1);
  std::memcpy(notice.sentence.data(), failure.sentence.data(), length);
  if (end == End::abort) adopt(End::failure, notice);
  adopt(end, notice);
  tell_all(notice);
}

void MpiGroup::leave() noexcept {
  if (!failed() && mpi_is_usable()) tell_all({.kind = Notice::Kind::farewell});
}

void MpiGroup::say_closed(int mailbox) noexcept {
  tell_all({.kind = Notice::Kind::closing, .mailbox = mailbox});
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

void MpiGroup::tell_all(const Notice& notice) noexcept try {
  if (!mpi_is_usable()) return;
  auto send = std::make_unique<NoticeSend>(notice, members_);
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
  if (is_setting_up(*awaited) && !ready()) {
    fail_and_raise({Code::mismatch, awaited->peer,
                    sentence(describe(*awaited, rank()), "; rank ", awaited->peer,
                             " makes a mailbox or splits the group instead")});
  }
  if (!is_long_gone(awaited->peer) || ready()) return;
  fail_and_raise(
      {Code::peer_lost, awaited->peer,
       sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " has left the group")});
}

// Whether a set-up message of the peer has lain here for so long that all chunks that the peer sent
// before it are here too. The peer sends such a message when its earlier calls are done: then it
// takes no part in this one. Chunks of a program's own prove nothing, since another thread of the
// peer may send them meanwhile.
bool MpiGroup::is_setting_up(const Awaited& awaited) {
  const Operation operation = awaited.tag.operation;
  const bool is_chunk_of_a_call = !awaited.room && operation != Operation::custom;
  if (!is_chunk_of_a_call || awaited.peer == rank()) return false;
  int there = 0;
  {
    const auto held = hold_mpi();
    check_mpi(MPI_Iprobe(members_.processes[awaited.peer], members_.my_tag(kSetUpTag),
                         members_.for_agreements(), &there, MPI_STATUS_IGNORE),
              "MPI_Iprobe");
  }
  const bool is_first = seen_.peer != awaited.peer || seen_.call != awaited.tag.call;
  if (there == 0 || is_first || seen_.at == 0)
    seen_ = {.peer = awaited.peer, .call = awaited.tag.call, .at = there == 0 ? 0 : base::now()};
  return seen_.at != 0 && base::now() - seen_.at > kUnderWay;
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
