#include "comm/mapped/mapped_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/futex.h"
#include "base/text.h"

namespace plait::comm {

using base::sentence;

MappedGroup::MappedGroup(const std::shared_ptr<Rendezvous>& rendezvous, const WaitPolicy& policy,
                         const Rendezvous::Watch& watch)
    : Group(rendezvous->rank(), rendezvous->world(), policy),
      rendezvous_(rendezvous),
      regions_(rendezvous->share(sizeof(RankPage), "group", watch)) {
  // A kernel that refuses makes sleepers nap shortly instead (see Doorbell).
  static_cast<void>(base::register_for_heavy_fences());
  for (const base::Region& region : regions_) {
    // A page of zero bytes is a RankPage on which nothing has happened.
    pages_.push_back(reinterpret_cast<RankPage*>(region.data()));
  }
}

// Memory ordering: the record is written before ended_by names it (release); who finds it named
// (acquire, in has_ended() and record_of()) reads the whole record.
void MappedGroup::end(End end, const Failure& failure) noexcept {
  const auto which = static_cast<std::size_t>(end);
  RankPage::Record& record = page(rank()).records[which];
  // Relaxed: a second thread of this rank may fail at the same time; only one may write the record.
  if (record.taken.exchange(1, std::memory_order_relaxed) == 0) {
    record.code = failure.code;
    record.culprit = failure.culprit;
    const std::size_t length = std::min(failure.sentence.size(), record.sentence.size() - 1);
    std::memcpy(record.sentence.data(), failure.sentence.data(), length);
    record.sentence[length] = '\0';
    std::uint32_t nobody = 0;
    page(0).ended_by[which].compare_exchange_strong(nobody, rank() + 1, std::memory_order_acq_rel);
  } else {
    // Another thread of this rank is at it; what follows may read what it records.
    while (!has_ended(end)) base::pause();
  }
  for (int peer = 0; peer < world(); ++peer) ring(peer);
}

Failure MappedGroup::record_of(End end) const {
  const auto which = static_cast<std::size_t>(end);
  const std::uint32_t reporter =
      page(0).ended_by[which].load(std::memory_order_acquire);  // pairs with end()
  const RankPage::Record& record = page(static_cast<int>(reporter) - 1).records[which];
  return {.code = record.code, .culprit = record.culprit, .sentence = record.sentence.data()};
}

bool MappedGroup::has_left(int peer) const {
  return page(peer).left.load(std::memory_order_acquire) !=
         0;  // pairs with leave(): its last posts are visible
}

void MappedGroup::leave() noexcept {
  page(rank()).left.store(1, std::memory_order_release);  // pairs with has_left()
  for (int peer = 0; peer < world(); ++peer) ring(peer);
}

void MappedGroup::examine(const Awaited* awaited, base::FunctionRef<bool()> ready) {
  raise_if_failed();
  const std::string waits =
      awaited == nullptr ? sentence("rank ", rank(), " looks around") : describe(*awaited, rank());
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    const bool ended = rendezvous_->has_ended(peer);
    if (ended && !has_left(peer)) {
      fail_and_raise(
          {Code::peer_lost, peer,
           sentence(waits, "; rank ", peer, " (", rendezvous_->describe(peer), ") has died")});
    }
  }
  if (awaited == nullptr) return;
  for (int peer = 0; peer < world(); ++peer) examine_call(peer);
  if (awaited->peer == rank()) return;
  if (has_left(awaited->peer) && !ready()) {
    fail_and_raise({Code::peer_lost, awaited->peer,
                    sentence(waits, "; rank ", awaited->peer, " (",
                             rendezvous_->describe(awaited->peer), ") has left the group")});
  }
}

// A peer may be in another call than this rank was, or is: then somebody waits for what will never
// come, and the two tags say why. Of a peer that is ahead nothing can be said; it will say it.
void MappedGroup::examine_call(int peer) {
  Tag theirs;
  if (peer == rank() || !page(peer).call.read(theirs)) return;
  Tag mine;
  if (!calls_[theirs.call % calls_.size()].read(mine)) return;
  if (mine.call != theirs.call || mine == theirs) return;
  fail_and_raise({Code::mismatch, peer,
                  sentence(name(mine.operation), ": rank ", rank(), " and rank ", peer,
                           " disagree on ", difference(mine, theirs))});
}

// Follows the waits from `awaited_peer`: 1 waits for 2 waits for 3, and 3 waits for nobody, or says
// that it waits but has not moved for a while: it is the one.
int MappedGroup::find_culprit(int awaited_peer) {
  std::vector<Wait> before;
  before.reserve(world());
  for (int peer = 0; peer < world(); ++peer) before.push_back(page(peer).wait.read());
  // Ten beats of a waiting rank. This one goes on beating: others may be looking for the culprit
  // too.
  for (int beat = 0; beat < 10 && !failed(); ++beat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    page(rank()).wait.begin(awaited_peer);
  }
  int suspect = awaited_peer;
  for (int steps = 0; steps < world(); ++steps) {
    const Wait wait = page(suspect).wait.read();
    const bool waits = wait.peer >= 0 && wait.peer < world() && wait.beat != before[suspect].beat;
    if (!waits || wait.peer == rank()) return suspect;
    suspect = wait.peer;
  }
  return awaited_peer;  // they wait for each other
}

void MappedGroup::give_up(const Awaited& awaited) {
  const int culprit = find_culprit(awaited.peer);
  raise_if_failed();
  std::string blame;
  if (culprit != awaited.peer) {
    blame = sentence("; in the end all wait for rank ", culprit);
  }
  fail_and_raise(
      {Code::timeout, culprit,
       sentence(describe(awaited, rank()), " since ", base::show_duration(policy().timeout), blame,
                " (", rendezvous_->describe(culprit), ")")});
}

void MappedGroup::doze(Nanoseconds until, base::FunctionRef<bool()> ready) {
  page(rank()).doorbell.sleep(until - base::now(), [&] { return failed() || ready(); });
}

}  // namespace plait::comm
