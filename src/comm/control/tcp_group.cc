#include "comm/control/tcp_group.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/control/failure_frame.h"
#include "comm/core/operation.h"
#include "comm/core/started.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// How long a rank that reports a failure sleeps before it looks again whether it is recorded.
constexpr Nanoseconds kBetweenReports = PollTimes{}.between;

// How often a rank that waits asks its peers which call they are in.
constexpr Nanoseconds kBetweenInquiries = 500 * base::kMillisecond;

}  // namespace

int Members::rank_of(int process) const {
  const auto found = std::find(processes.begin(), processes.end(), process);
  return found == processes.end() ? -1 : static_cast<int>(found - processes.begin());
}

TcpGroup::TcpGroup(std::shared_ptr<Mesh> mesh, Members members, const WaitPolicy& policy)
    : BlamingGroup(members.me, members.size(), policy, shown_),
      mesh_(std::move(mesh)),
      members_(std::move(members)),
      has_left_(world()),
      has_told_mismatch_(world()),
      agreements_(*this, *this),
      parts_(world()),
      answers_(world()),
      number_(mesh_->add(*this)) {}

TcpGroup::~TcpGroup() { mesh_->remove(number_); }

void TcpGroup::set_numbers(std::vector<std::uint32_t> numbers) {
  const std::lock_guard lock(mutex_);  // a peer that knows the numbers may ask already
  members_.numbers = std::move(numbers);
}

// Memory ordering: chunks that the peer sent before its farewell were counted by the thread that
// sets has_left_ (release); a thread that sees it set (acquire) finds them.
bool TcpGroup::receive(int process, const Frame& frame, std::string text) {
  const int peer = members_.rank_of(process);
  if (peer < 0) return false;
  switch (frame.kind) {
    case Kind::gather: {
      const std::lock_guard lock(mutex_);
      parts_[peer].push_back({.call = frame.tag, .text = std::move(text)});
      return true;
    }
    case Kind::report: {
      const auto failure = read_failure(text);
      if (!failure) return false;
      note_told(peer, *failure);
      record_for(peer, *failure);
      return true;
    }
    case Kind::failure:
    case Kind::abort: {
      const auto failure = read_failure(text);
      if (!failure) return false;
      note_told(peer, *failure);
      if (frame.kind == Kind::abort) adopt(End::abort, *failure);
      adopt(End::failure, *failure);
      return true;
    }
    case Kind::farewell:
      has_left_[peer].store(true, std::memory_order_release);
      return true;
    case Kind::inquiry:
      answer(peer);
      return true;
    case Kind::answer:
      return note_answer(peer, text);
    case Kind::agreement:
      return agreements_.receive(peer, text);
    default:
      return false;
  }
}

void TcpGroup::adopt(End end, const Failure& failure) noexcept {
  if (records_.add(end, failure)) mesh_->note_failure();
}

void TcpGroup::end(End end, const Failure& failure) noexcept {
  if (has_ended(end)) return;
  // The others hear it from this rank too: by that they know that it brings nothing more.
  if (end == End::failure && report(failure))
    return announce_all(Kind::failure, write(records_.get(End::failure)));
  if (end == End::abort) adopt(End::failure, failure);
  adopt(end, failure);
  mesh_->wake();
  announce_all(end == End::abort ? Kind::abort : Kind::failure, write(failure));
}

bool TcpGroup::report(const Failure& failure) noexcept {
  if (members_.numbers.empty()) return false;
  const auto wait = [&] {
    const std::uint64_t seen = mesh_->news();
    mesh_->move();
    if (!has_ended(End::failure)) mesh_->sleep(base::now() + kBetweenReports, seen);
  };
  return is_recorded_elsewhere(
      failure,
      {.is_there =
           [&](int peer) {
             return !has_left(peer) && mesh_->loss_of(members_.processes[peer], number_).empty();
           },
       .report =
           [&](int peer) { send(peer, {.kind = Kind::report, .receiver = 0}, write(failure)); },
       .wait = wait});
}

// Called by the thread that receives. If an earlier failure stands, all but this peer know it.
void TcpGroup::record_for(int peer, const Failure& failure) {
  const bool is_first = !has_ended(End::failure);
  if (is_first) adopt(End::failure, failure);
  const std::string text = write(records_.get(End::failure));
  const std::lock_guard lock(mutex_);
  if (members_.numbers.empty()) return;
  for (int other = 0; other < world(); ++other) {
    if (other == rank() || (other != peer && !is_first)) continue;
    mesh_->reply(members_.processes[other],
                 {.kind = Kind::failure, .receiver = members_.numbers[other]}, text);
  }
}

void TcpGroup::announce_all(Kind kind, const std::string& text) noexcept {
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) send(peer, {.kind = kind, .receiver = 0}, text);
  }
}

void TcpGroup::send(int peer, Frame frame, const std::string& text) noexcept {
  if (members_.numbers.empty()) return;
  frame.receiver = members_.numbers[peer];
  mesh_->send_text(members_.processes[peer], frame, text);
}

AgreementMessages::PeerState TcpGroup::look_at(int peer) {
  const int process = members_.processes[peer];
  const bool is_lost = !mesh_->loss_of(process, number_).empty();
  return {.is_lost = is_lost,
          .is_only_chunks = mesh_->is_lost_by_carrier_alone(process),
          .has_ended = mesh_->is_closed_by(process),
          .has_left = has_left(peer)};
}

// One that was told of a failure says it again: its connection may end at a third rank before the
// word of the rank that failed is there, and would be taken for the reason. Where a group that this
// one is a part of was aborted, that group says it. Chunks that other threads go on sending in
// other groups are not waited for.
void TcpGroup::leave() noexcept {
  std::vector<std::uint32_t> sent;
  sent.reserve(mesh_->size());
  for (int process = 0; process < mesh_->size(); ++process) sent.push_back(mesh_->sent_to(process));
  wait_for_peers([&](int process) { return mesh_->is_received(process, sent[process]); },
                 [&](int peer) {
                   return sentence("rank ", rank(), " leaves and waits for rank ", peer,
                                   " to receive the last chunks");
                 });
  if (failed()) agreements_.withdraw();
  if (has_ended(End::abort)) return announce_all(Kind::abort, write(records_.get(End::abort)));
  if (has_ended(End::failure))
    return announce_all(Kind::failure, write(records_.get(End::failure)));
  if (!failed()) announce_all(Kind::farewell, "");
}

// True if the kernel here has all that is listed for the process.
bool TcpGroup::is_taken(const std::vector<Unsent>& unsent, int process) const {
  return std::all_of(unsent.begin(), unsent.end(), [&](const Unsent& one) {
    return one.process != process || mesh_->is_taken(one);
  });
}

std::string TcpGroup::ending(int peer) const {
  return sentence(name(announcer_.last().operation), ": rank ", rank(),
                  " ends its call and waits for rank ", peer, " to receive the last chunks");
}

bool TcpGroup::is_sent(const std::vector<Unsent>& unsent, Patience& patience) {
  return unsent.empty() || are_done(
                               patience, [&](int process) { return is_taken(unsent, process); },
                               [&](int peer) { return ending(peer); });
}

void TcpGroup::finish_sending(const std::vector<Unsent>& unsent) {
  if (unsent.empty()) return;
  await_peers([&](int process) { return is_taken(unsent, process); },
              [&](int peer) { return ending(peer); });
}

void TcpGroup::wait_for_peers(base::FunctionRef<bool(int process)> is_done,
                              base::FunctionRef<std::string(int peer)> doing) noexcept try {
  const bool had_failed = failed();
  await_peers(is_done, doing);
  // The program may never make another call that could throw it.
  if (failed() && !had_failed) std::fprintf(stderr, "plait: %s\n", failure().sentence.c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "plait: while waiting for peers: %s\n", error.what());
} catch (...) {  // NOLINT(bugprone-empty-catch): a caller's hook ends the wait with what it throws
}

void TcpGroup::await_peers(base::FunctionRef<bool(int process)> is_done,
                           base::FunctionRef<std::string(int peer)> doing) {
  Patience patience(policy());
  for (;;) {
    const std::uint64_t seen = mesh_->news();
    if (are_done(patience, is_done, doing)) return;
    mesh_->sleep(std::min(patience.wake_at(), base::now() + base::kMillisecond), seen);
  }
}

// A turn of such a wait. True at its end, where the group has failed too.
bool TcpGroup::are_done(Patience& patience, base::FunctionRef<bool(int process)> is_done,
                        base::FunctionRef<std::string(int peer)> doing) {
  for (int peer = 0; !members_.numbers.empty() && !failed() && peer < world(); ++peer) {
    const int process = members_.processes[peer];
    if (peer == rank() || has_left(peer) || is_done(process)) continue;
    mesh_->move();
    if (failed() || is_done(process)) continue;
    const Nanoseconds now = base::now();
    if (patience.must_poll_peers(now, *this)) check_for_losses([&] { return doing(peer); });
    if (patience.is_over(now)) {
      mesh_->give_up_on(process);
      fail({.code = Code::timeout,
            .culprit = peer,
            .sentence = doing(peer) + " for " + base::show_duration(policy().timeout)});
    }
    return failed();
  }
  return true;
}

void TcpGroup::check_for_losses(base::FunctionRef<std::string()> doing) {
  mesh_->move();
  for (int peer = 0; peer < world() && !failed(); ++peer) {
    if (peer == rank() || has_left(peer)) continue;
    const std::string loss = mesh_->loss_of(members_.processes[peer], number_);
    // Another thread may have read its farewell meanwhile.
    if (loss.empty() || has_left(peer) || failed()) continue;
    fail({Code::peer_lost, peer,
          sentence(doing(), "; rank ", peer, show_process(peer), " is lost: ", loss)});
  }
}

void TcpGroup::examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) {
  check_for_losses([&] { return describe_poll(awaited, rank()); });
  raise_if_failed();
  if (awaited == nullptr) return;
  announcer_.renew(is_multiplying(*awaited, rank()));
  if (awaited->peer == Error::kNoRank) return;
  if (awaited->peer != rank()) compare_answers();
  const bool is_chunk_of_a_call = !awaited->room && awaited->tag.operation != Operation::custom;
  if (is_chunk_of_a_call && awaited->peer != rank()) compare_set_ups(*awaited, ready);
  if (!has_left(awaited->peer) || ready()) return;
  fail_and_raise(
      {Code::peer_lost, awaited->peer,
       sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " has left the group")});
}

// Clocks of hosts differ: a moment travels as the time that has passed since.
void TcpGroup::answer(int peer) {
  Whereabouts where = read(shown_);
  if (where.sign.at != 0) where.sign.at = std::max<Nanoseconds>(base::now() - where.sign.at, 1);
  const std::lock_guard lock(mutex_);
  if (members_.numbers.empty()) return;
  std::string text(sizeof(where), '\0');
  std::memcpy(text.data(), &where, sizeof(where));
  mesh_->reply(members_.processes[peer], {.kind = Kind::answer, .receiver = members_.numbers[peer]},
               text);
}

bool TcpGroup::note_answer(int peer, const std::string& text) {
  Whereabouts where;
  if (text.size() != sizeof(where)) return false;
  std::memcpy(&where, text.data(), sizeof(where));
  const Nanoseconds now = base::now();
  if (where.has_call > 1 || where.call.operation > kLastOperation) return false;
  if (where.elsewhere.operation > kLastOperation || where.elsewhere.peer >= world()) return false;
  if (where.sign.doing > Sign::Doing::product || where.sign.at < 0 || where.sign.at > now)
    return false;
  if (where.sign.at != 0) where.sign.at = now - where.sign.at;
  const std::lock_guard lock(mutex_);
  answers_[peer] = {.where = where, .seen_at = now};
  return true;
}

bool TcpGroup::inquire() {
  inquired_at_.store(base::now(), std::memory_order_relaxed);
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank() || has_left(peer)) continue;
    mesh_->send(members_.processes[peer],
                {.kind = Kind::inquiry, .receiver = members_.numbers[peer]}, nullptr, nullptr,
                Mesh::Urgency::now);
  }
  return true;
}

std::vector<BlamingGroup::Account> TcpGroup::accounts() const {
  std::unique_lock lock(mutex_);
  std::vector<Account> all = answers_;
  lock.unlock();
  all[rank()] = {.where = read(shown_), .seen_at = base::now()};
  return all;
}

std::string TcpGroup::show_process(int rank) const {
  if (rank == this->rank()) return "";
  return " (" + mesh_->name_of(members_.processes[rank]) + ")";
}

// A peer may be in another call than this rank was, or is: then one of them waits for a chunk that
// will never come, and the two tags say why.
void TcpGroup::compare_answers() {
  const std::vector<Account> heard = accounts();
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank() && heard[peer].where.has_call != 0)
      compare_with(peer, heard[peer].where.call);
  }
  if (base::now() - inquired_at_.load(std::memory_order_relaxed) > kBetweenInquiries) inquire();
}

// A near rank that finds this one asleep sends it a frame, which is news to all of its threads.
void TcpGroup::sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) {
  std::optional<SleepSign::Sleeper> sleeper;
  if (!mesh_->near().is_alone()) sleeper.emplace(mesh_->near().my_sign());
  for (Nanoseconds now = base::now(); now < until; now = base::now()) {
    const std::uint64_t seen = mesh_->news();
    const Nanoseconds nap = sleeper ? sleeper->prepare(until - now) : until - now;
    mesh_->move();
    if (failed() || ready()) return;
    mesh_->sleep(now + nap, seen);
  }
}

}  // namespace plait::comm::tcp
