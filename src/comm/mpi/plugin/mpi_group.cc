#include "comm/mpi/plugin/mpi_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace plait::comm::mpi {

using base::sentence;

namespace {

constexpr Nanoseconds kFarewell = 200 * base::kMillisecond;  // how long a notice may take to leave

}  // namespace

MpiGroup::MpiGroup(Session session, const WaitPolicy& policy)
    : Group(session.rank(), session.world(), policy), session_(std::move(session)), left_(world()) {
  expect_notice();
}

MpiGroup::~MpiGroup() {
  const auto held = hold_mpi();
  if (hearing_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&hearing_);
  MPI_Wait(&hearing_,
           MPI_STATUS_IGNORE);  // returns at once: the receive is cancelled or has a message
}

void MpiGroup::expect_notice() {
  const auto held = hold_mpi();
  check_mpi(
      MPI_Irecv(&heard_, sizeof(heard_), MPI_BYTE, MPI_ANY_SOURCE, 0, session_.get(), &hearing_),
      "MPI_Irecv");
}

void MpiGroup::listen() {
  for (;;) {
    MPI_Status status;
    {
      const auto held = hold_mpi();
      int there = 0;
      if (hearing_ == MPI_REQUEST_NULL) return;
      check_mpi(MPI_Test(&hearing_, &there, &status), "MPI_Test");
      if (there == 0) return;
    }
    // Pairs with examine(): what the peer posted before it left has its place in the queues
    // already.
    if (heard_.left) left_[status.MPI_SOURCE].store(true, std::memory_order_release);
    if (!heard_.left) adopt(heard_);
    expect_notice();
  }
}

// Memory ordering: the record is complete before failed_ is set (release); who sees it set
// (acquire, in failed()) reads it whole. The mutex keeps two failures from being recorded at once.
void MpiGroup::adopt(const Notice& notice) noexcept {
  const std::lock_guard lock(record_mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  record_ = {.code = notice.code, .culprit = notice.culprit, .sentence = notice.sentence.data()};
  note_failure();
  failed_.store(true, std::memory_order_release);
}

void MpiGroup::fail(const Failure& failure) noexcept {
  if (failed()) return;
  Notice notice = {.left = false, .code = failure.code, .culprit = failure.culprit, .sentence = {}};
  const std::size_t length = std::min(failure.sentence.size(), notice.sentence.size() - 1);
  std::memcpy(notice.sentence.data(), failure.sentence.data(), length);
  adopt(notice);
  tell_all(notice);
}

void MpiGroup::leave() noexcept {
  if (!failed())
    tell_all({.left = true, .code = Code::peer_lost, .culprit = rank(), .sentence = {}});
}

// Copies the notice for every peer and gives the sends a moment to get away; whatever is stuck then
// is stuck with a peer that does not listen any more.
void MpiGroup::tell_all(const Notice& notice) noexcept {
  std::vector<MPI_Request> sends(world(), MPI_REQUEST_NULL);
  for (int peer = 0; peer < world(); ++peer) {
    const auto held = hold_mpi();
    if (peer != rank())
      MPI_Isend(&notice, sizeof(notice), MPI_BYTE, peer, 0, session_.get(), &sends[peer]);
  }
  const Nanoseconds deadline = base::now() + kFarewell;
  for (int done = 0; done == 0 && base::now() < deadline;) {
    const auto held = hold_mpi();
    MPI_Testall(world(), sends.data(), &done, MPI_STATUSES_IGNORE);
  }
}

Failure MpiGroup::failure() const {
  const std::lock_guard lock(record_mutex_);
  return record_;
}

void MpiGroup::examine(const Awaited* awaited, base::FunctionRef<bool()> ready) {
  listen();
  raise_if_failed();
  if (awaited == nullptr) return;
  if (!has_left(awaited->peer)) return;
  // What it sent last is on its way: it left only after this rank's library had taken it up.
  const Nanoseconds end = base::now() + kFarewell;
  while (base::now() < end) {
    if (ready()) return;
  }
  fail_and_raise(
      {Code::peer_lost, awaited->peer,
       sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " has left the group")});
}

void MpiGroup::give_up(const Awaited& awaited) {
  fail_and_raise(
      {Code::timeout, awaited.peer,
       sentence(describe(awaited, rank()), " since ", base::show_duration(policy().timeout))});
}

// Nobody rings: MPI must be called for anything to move. 20 µs keep the core mostly free, and are
// little beside a network's latency.
void MpiGroup::doze(Nanoseconds until, base::FunctionRef<bool()> ready) {
  while (base::now() < until) {
    listen();
    if (failed() || ready()) return;
    ::usleep(20);
  }
}

}  // namespace plait::comm::mpi
