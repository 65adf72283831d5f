// Counts the calls in which the ranks of a group make something together.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "comm/engines/mpi/plugin/mpi_group.h"

namespace plait::comm::mpi {

using base::sentence;

void MpiGroup::begin_set_up() {
  announce_all({.kind = Notice::Kind::set_up, .call = announcer_.last()});
}

std::optional<MpiGroup::SetUp> MpiGroup::set_up_of(int peer) const {
  const std::lock_guard lock(set_ups_mutex_);
  if (set_ups_[peer].empty()) return std::nullopt;
  return set_ups_[peer].front();
}

// The texts of different calls may look alike.
std::vector<int> MpiGroup::find_missing_set_ups() {
  listen();
  const Tag mine = announcer_.last();
  std::vector<int> missing;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    const auto theirs = set_up_of(peer);
    if (!theirs) missing.push_back(peer);
    if (theirs && theirs->call != mine)
      fail_and_raise({Code::mismatch, peer, disagreement(mine, rank(), peer, theirs->call)});
  }
  return missing;
}

// Memory ordering: a thread that sees that the peer has told it (acquire; pairs with hear()) finds
// the set-up that it has heard of before.
bool MpiGroup::can_never_bring(const std::vector<int>& missing) const {
  return std::any_of(missing.begin(), missing.end(), [this](int peer) {
    return has_told_mismatch_[peer].load(std::memory_order_acquire) && !set_up_of(peer);
  });
}

void MpiGroup::end_set_up() {
  const std::lock_guard lock(set_ups_mutex_);
  for (auto& of_peer : set_ups_) {
    if (!of_peer.empty()) of_peer.pop_front();
  }
}

// A peer that takes part in a set-up is through with its earlier calls: if all chunks have come
// that it sent before, it sends none for this one. That proves nothing where a program waits for
// chunks of its own, since another thread of the peer may send them.
void MpiGroup::compare_set_ups(const Awaited& awaited, base::FunctionRef<bool()> ready) {
  for (int peer = 0; peer < world(); ++peer) {
    const auto theirs = set_up_of(peer);
    if (!theirs) continue;
    const std::string mismatch = announcer_.find_mismatch(rank(), peer, theirs->call);
    if (!mismatch.empty()) fail_and_raise({Code::mismatch, peer, mismatch});
    if (peer != awaited.peer || !chunks_.have_come(peer, theirs->chunks) || ready()) continue;
    fail_and_raise({Code::mismatch, peer,
                    sentence(describe(awaited, rank()), "; rank ", peer, " is in ",
                             name(theirs->call.operation), " instead")});
  }
}

}  // namespace plait::comm::mpi
