// How the ranks of a group bring texts to an agreement when they make something together.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/control/tcp_group.h"
#include "comm/core/started.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

// An agreement for which every rank has sent its part is brought to its end, even where one of them
// has failed since: it fails for all or for none.
constexpr Nanoseconds kUnderWay = base::kSecond;

}  // namespace

bool TcpGroup::has_brought(int peer) const {
  const std::lock_guard lock(mutex_);
  return !parts_[peer].empty();
}

std::optional<Tag> TcpGroup::call_of_set_up(int peer) const {
  const std::lock_guard lock(mutex_);
  if (parts_[peer].empty()) return std::nullopt;
  return parts_[peer].front().call;
}

// The texts of different calls may look alike.
void TcpGroup::refuse_other_calls(const Tag& mine) {
  for (int peer = 0; peer < world(); ++peer) {
    const auto theirs = call_of_set_up(peer);
    if (theirs && *theirs != mine)
      fail_and_raise({Code::mismatch, peer, disagreement(mine, rank(), peer, *theirs)});
  }
}

// Frames come in order: a peer that already takes part in a set-up is through with this call.
void TcpGroup::compare_set_ups(const Awaited& awaited, base::FunctionRef<bool()> ready) {
  for (int peer = 0; peer < world(); ++peer) {
    const auto theirs = call_of_set_up(peer);
    if (!theirs) continue;
    compare_with(peer, *theirs);
    if (peer != awaited.peer || ready()) continue;
    fail_and_raise({Code::mismatch, peer,
                    sentence(describe(awaited, rank()), "; rank ", peer, " is in ",
                             name(theirs->operation), " instead")});
  }
}

// True if one of these peers is lost, or makes no calls after the failure, or has told that ranks
// are in different calls: then it doesn't begin this one. What it sent before has been received by
// then.
//
// Memory ordering: a thread that sees that the peer has told it (acquire; pairs with note_told())
// finds the part that it has received before.
bool TcpGroup::can_never_bring(const std::vector<int>& missing) {
  return std::any_of(missing.begin(), missing.end(), [this](int peer) {
    const bool has_gone = agreements_.has_moved_on(peer) ||
                          has_told_mismatch_[peer].load(std::memory_order_acquire) ||
                          !mesh_->loss_of(members_.processes[peer]).empty();
    return has_gone && !has_brought(peer);
  });
}

std::vector<int> TcpGroup::find_missing() {
  const std::lock_guard lock(mutex_);
  std::vector<int> missing;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank() && parts_[peer].empty()) missing.push_back(peer);
  }
  return missing;
}

// "; rank 1 waits in another communicator, in barrier, for rank 0", if it does.
std::string TcpGroup::find_wait_elsewhere(const Awaited& awaited, PublishedWait& published) {
  const Culprit late = find_culprit(awaited, published);
  return late.account.where.elsewhere.waits == 0 ? "" : "; " + describe_late(late);
}

std::vector<std::string> TcpGroup::all_gather(const std::string& mine) {
  Patience patience(policy(), kAtOnce);
  PublishedWait published(*this, PublishedWait::Blocks::yes);
  const Tag call = announcer_.last();
  // The first call of a group is a part of the call that makes it.
  Awaited awaited = {.peer = Error::kNoRank, .tag = call};
  if (call.operation == Operation::custom) awaited.tag.operation = Operation::split;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) send(peer, {.kind = Kind::gather, .receiver = 0, .tag = call}, mine);
  }
  Nanoseconds failed_at = 0;
  for (;;) {
    const std::uint64_t seen = mesh_->news();
    mesh_->move();
    refuse_other_calls(call);
    const std::vector<int> missing = find_missing();
    if (missing.empty()) break;
    const Nanoseconds now = base::now();
    awaited.peer = missing.front();
    if (patience.must_poll_peers(now, *this)) {
      published.publish(awaited);
      check_for_losses(
          [&] { return sentence("rank ", rank(), " waits to meet rank ", missing.front()); });
      if (failed() && failed_at == 0) failed_at = now;
      if (failed() && (now - failed_at > kUnderWay || can_never_bring(missing))) raise();
      for (const int peer : missing) {
        // Its text may have come with its farewell.
        if (failed() || !has_left(peer) || has_brought(peer)) continue;
        throw Error(
            Code::peer_lost,
            sentence("rank ", rank(), " waits to meet rank ", peer, ", which has left the group"),
            peer);
      }
    }
    if (patience.is_over(now)) {
      const std::string where = find_wait_elsewhere(awaited, published);
      if (!failed() && find_missing() == missing) refuse_for_missing(missing, where);
    }
    if (policy().advance && policy().advance()) patience.renew(now);
    mesh_->sleep(nap_of(patience.wake_at() - now) + now, seen);
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all(world());
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) {
      all[peer] = mine;
    } else {
      all[peer] = std::move(parts_[peer].front().text);
      parts_[peer].pop_front();
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

void TcpGroup::refuse_for_missing(const std::vector<int>& missing, const std::string& where) {
  throw Error(
      Code::timeout,
      sentence("rank ", rank(), " has waited ", base::show_duration(policy().timeout), " for rank",
               missing.size() > 1 ? "s " : " ", base::show_list(missing), " of ", world(), where),
      missing.front());
}

}  // namespace plait::comm::tcp
