#include "comm/tcp/tcp_group.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/started.h"
#include "comm/tcp/failure_frame.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// An agreement for which every rank has sent its part is brought to its end, even where one of them
// has failed since: it fails for all or for none.
constexpr Nanoseconds kUnderWay = base::kSecond;

}  // namespace

int Members::rank_of(int process) const {
  const auto found = std::find(processes.begin(), processes.end(), process);
  return found == processes.end() ? -1 : static_cast<int>(found - processes.begin());
}

TcpGroup::TcpGroup(std::shared_ptr<Mesh> mesh, Members members, const WaitPolicy& policy)
    : Group(members.me, members.size(), policy),
      mesh_(std::move(mesh)),
      members_(std::move(members)),
      has_left_(world()),
      agreements_(*this),
      gathered_(world()),
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
      gathered_[peer].push_back(std::move(text));
      return true;
    }
    case Kind::failure:
    case Kind::abort: {
      const auto failure = read_failure(text);
      if (!failure) return false;
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
  if (end == End::abort) adopt(End::failure, failure);
  adopt(end, failure);
  mesh_->wake();
  tell_all(end == End::abort ? Kind::abort : Kind::failure, write(failure));
}

void TcpGroup::tell_all(Kind kind, const std::string& text) noexcept {
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) tell(peer, kind, text);
  }
}

void TcpGroup::tell(int peer, Kind kind, const std::string& text) noexcept {
  if (members_.numbers.empty()) return;
  mesh_->send_text(members_.processes[peer], {.kind = kind, .receiver = members_.numbers[peer]},
                   text);
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
  if (has_ended(End::abort)) return tell_all(Kind::abort, write(records_.get(End::abort)));
  if (has_ended(End::failure)) return tell_all(Kind::failure, write(records_.get(End::failure)));
  if (!failed()) tell_all(Kind::farewell, "");
}

void TcpGroup::finish_sending() {
  const std::vector<Mesh::Queued> queued = mesh_->queued();
  if (queued.empty()) return;
  await_peers(
      [&](int process) {
        const auto found = std::find_if(queued.begin(), queued.end(),
                                        [&](const auto& one) { return one.process == process; });
        return found == queued.end() || mesh_->is_taken(*found);
      },
      [&](int peer) {
        return sentence("rank ", rank(), " ends a call and waits for rank ", peer,
                        " to receive the last chunks");
      });
  raise_if_failed();
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
  int peer = 0;
  while (!members_.numbers.empty() && !failed() && peer < world()) {
    const std::uint64_t seen = mesh_->news();
    if (peer == rank() || has_left(peer) || is_done(members_.processes[peer])) {
      ++peer;
      continue;
    }
    const Nanoseconds now = base::now();
    if (patience.must_poll_peers(now, *this)) check_for_losses([&] { return doing(peer); });
    if (patience.is_over(now)) {
      mesh_->give_up_on(members_.processes[peer]);
      fail({.code = Code::timeout,
            .culprit = peer,
            .sentence = doing(peer) + " for " + base::show_duration(policy().timeout)});
    }
    mesh_->move();
    mesh_->sleep(std::min(patience.wake_at(), base::now() + base::kMillisecond), seen);
  }
}

bool TcpGroup::has_brought(int peer) const {
  const std::lock_guard lock(mutex_);
  return !gathered_[peer].empty();
}

// Whether one of these peers is lost, or makes no calls after the failure. What it sent before has
// been received by then.
bool TcpGroup::can_never_bring(const std::vector<int>& missing) {
  return std::any_of(missing.begin(), missing.end(), [this](int peer) {
    const bool has_gone =
        agreements_.has_moved_on(peer) || !mesh_->loss_of(members_.processes[peer]).empty();
    return has_gone && !has_brought(peer);
  });
}

std::vector<int> TcpGroup::find_missing() {
  const std::lock_guard lock(mutex_);
  std::vector<int> missing;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank() && gathered_[peer].empty()) missing.push_back(peer);
  }
  return missing;
}

std::vector<std::string> TcpGroup::all_gather(const std::string& mine) {
  Patience patience(policy(), kAtOnce);
  tell_all(Kind::gather, mine);
  Nanoseconds failed_at = 0;
  for (;;) {
    const std::uint64_t seen = mesh_->news();
    mesh_->move();
    const std::vector<int> missing = find_missing();
    if (missing.empty()) break;
    const Nanoseconds now = base::now();
    if (patience.must_poll_peers(now, *this)) {
      check_for_losses(
          [&] { return sentence("rank ", rank(), " waits to meet rank ", missing.front()); });
      if (failed() && failed_at == 0) failed_at = now;
      if (failed() && (now - failed_at > kUnderWay || can_never_bring(missing))) raise();
      for (const int peer : missing) {
        // What it brought may have come with its farewell.
        if (failed() || !has_left(peer) || has_brought(peer)) continue;
        throw Error(
            Code::peer_lost,
            sentence("rank ", rank(), " waits to meet rank ", peer, ", which has left the group"),
            peer);
      }
    }
    if (patience.is_over(now)) refuse_for_missing(missing);
    advance_started();
    mesh_->sleep(nap_of(patience.wake_at() - now) + now, seen);
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all(world());
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) {
      all[peer] = mine;
    } else {
      all[peer] = std::move(gathered_[peer].front());
      gathered_[peer].pop_front();
    }
  }
  return all;
}

void TcpGroup::await_sent() {
  Patience patience(policy(), kAtOnce);
  for (int peer = 0; peer < world(); ++peer) {
    while (peer != rank()) {
      const std::uint64_t seen = mesh_->news();
      mesh_->move();
      if (mesh_->is_sent(members_.processes[peer])) break;
      const Nanoseconds now = base::now();
      if (patience.must_poll_peers(now, *this)) {
        check_for_losses([&] { return sentence("rank ", rank(), " connects to rank ", peer); });
        raise_if_failed();
      }
      if (patience.is_over(now)) refuse_for_missing({peer});
      mesh_->sleep(nap_of(patience.wake_at() - now) + now, seen);
    }
  }
}

void TcpGroup::refuse_for_missing(const std::vector<int>& missing) {
  throw Error(
      Code::timeout,
      sentence("rank ", rank(), " has waited ", base::show_duration(policy().timeout), " for rank",
               missing.size() > 1 ? "s " : " ", base::show_list(missing), " of ", world()),
      missing.front());
}

void TcpGroup::check_for_losses(base::FunctionRef<std::string()> doing) {
  mesh_->move();
  for (int peer = 0; peer < world() && !failed(); ++peer) {
    if (peer == rank() || has_left(peer)) continue;
    const std::string loss = mesh_->loss_of(members_.processes[peer]);
    // Another thread may have read its farewell meanwhile.
    if (loss.empty() || has_left(peer) || failed()) continue;
    fail({Code::peer_lost, peer,
          sentence(doing(), "; rank ", peer, " (", mesh_->name_of(members_.processes[peer]),
                   ") is lost: ", loss)});
  }
}

void TcpGroup::examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) {
  check_for_losses([&] {
    return awaited == nullptr ? sentence("rank ", rank(), " polls its peers")
                              : describe(*awaited, rank());
  });
  raise_if_failed();
  if (awaited == nullptr) return;
  announcer_.renew(is_multiplying(*awaited, rank()));
  if (awaited->peer == Error::kNoRank) return;
  if (awaited->peer != rank()) compare_answers();
  // Frames come in order: a peer that already takes part in a set-up is through with this call.
  const bool is_chunk_of_a_call = !awaited->room && awaited->tag.operation != Operation::custom;
  if (is_chunk_of_a_call && awaited->peer != rank() && has_brought(awaited->peer) && !ready()) {
    fail_and_raise({Code::mismatch, awaited->peer,
                    sentence(describe(*awaited, rank()), "; rank ", awaited->peer,
                             " makes a mailbox or splits the group instead")});
  }
  if (!has_left(awaited->peer) || ready()) return;
  fail_and_raise(
      {Code::peer_lost, awaited->peer,
       sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " has left the group")});
}

// A near rank that finds this one asleep sends it a frame, which is news to all of its threads.
void TcpGroup::sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) {
  std::optional<SleepSign::Sleeper> sleeper;
  if (!mesh_->near().is_alone()) sleeper.emplace(mesh_->near().my_sign());
  for (Nanoseconds now = base::now(); now < until; now = base::now()) {
    const Nanoseconds nap = sleeper ? sleeper->prepare(until - now) : until - now;
    const std::uint64_t seen = mesh_->news();
    mesh_->move();
    if (failed() || ready()) return;
    mesh_->sleep(now + nap, seen);
  }
}

}  // namespace plait::comm::tcp
