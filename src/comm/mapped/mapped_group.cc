#include "comm/mapped/mapped_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/futex.h"
#include "base/text.h"

namespace plait::comm {

using base::sentence;

namespace {

// A page of zero bytes is a RankPage on which nothing has happened.
std::vector<RankPage*> pages_in(const std::vector<base::Region>& regions) {
  std::vector<RankPage*> pages;
  pages.reserve(regions.size());
  for (const base::Region& region : regions) {
    pages.push_back(reinterpret_cast<RankPage*>(region.data()));
  }
  return pages;
}

}  // namespace

MappedGroup::MappedGroup(const std::shared_ptr<Rendezvous>& rendezvous, const WaitPolicy& policy,
                         const Rendezvous::Watch& watch)
    : Group(rendezvous->rank(), rendezvous->world(), policy),
      rendezvous_(rendezvous),
      regions_(rendezvous->share(sizeof(RankPage), "group", watch)),
      pages_(pages_in(regions_)),
      announcer_(page(rendezvous->rank()).shown) {
  // A kernel that refuses makes sleepers nap shortly instead (see Doorbell).
  static_cast<void>(base::register_for_heavy_fences());
  rendezvous_->see_leaving_by([this](int peer) { return has_left(peer); });
}

// Memory ordering: the record is written before ended_by names it (release); a rank that finds it
// named (acquire, in has_ended() and record_of()) reads the whole record.
void MappedGroup::end(End end, const Failure& failure) noexcept {
  record_first(end, failure);
  for (int peer = 0; peer < world(); ++peer) ring(peer);
}

// Threads of this rank may fail at the same time. Those that come second sleep until the record is
// there, so that the first gets the processor whatever the threads' priorities are.
void MappedGroup::record_first(End end, const Failure& failure) noexcept {
  const auto which = static_cast<std::size_t>(end);
  const std::lock_guard alone(recording_);
  if (has_ended(end)) return;
  RankPage::Record& record = page(rank()).records[which];
  record.code = failure.code;
  record.culprit = failure.culprit;
  const std::size_t length = std::min(failure.sentence.size(), record.sentence.size() - 1);
  std::memcpy(record.sentence.data(), failure.sentence.data(), length);
  record.sentence[length] = '\0';
  std::uint32_t none = 0;
  page(0).ended_by[which].compare_exchange_strong(none, rank() + 1, std::memory_order_acq_rel);
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

void MappedGroup::examine_peers(const Awaited* awaited, base::FunctionRef<bool()> ready) {
  raise_if_failed();
  if (awaited != nullptr) announcer_.renew(is_multiplying(*awaited, rank()));
  examine_lives(awaited);
  if (awaited == nullptr) return;
  examine_calls();
  if (awaited->peer == rank() || awaited->peer == Error::kNoRank) return;
  if (has_left(awaited->peer) && !ready()) {
    fail_and_raise({Code::peer_lost, awaited->peer,
                    sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " (",
                             rendezvous_->describe(awaited->peer), ") has left the group")});
  }
}

// A rank that ended in good order has left before.
bool MappedGroup::has_died(int peer) const {
  return peer != rank() && rendezvous_->has_ended(peer) && !has_left(peer);
}

bool MappedGroup::misses_one() const {
  for (int peer = 0; peer < world(); ++peer) {
    if (has_died(peer)) return true;
  }
  return false;
}

void MappedGroup::examine_lives(const Awaited* awaited) {
  for (int peer = 0; peer < world(); ++peer) {
    if (!has_died(peer)) continue;
    const std::string waits = awaited == nullptr ? sentence("rank ", rank(), " polls its peers")
                                                 : describe(*awaited, rank());
    fail_and_raise(
        {Code::peer_lost, peer,
         sentence(waits, "; rank ", peer, " (", rendezvous_->describe(peer), ") has died")});
  }
}

void MappedGroup::examine_calls() {
  for (int peer = 0; peer < world(); ++peer) examine_call(peer);
}

void MappedGroup::compare_calls() {
  announcer_.settle();
  examine_calls();
}

// A peer may be in another call than this rank was, or is: then one of them waits for a chunk that
// will never come, and the two tags say why. A peer that is ahead will report the mismatch itself.
void MappedGroup::examine_call(int peer) {
  Tag theirs;
  if (peer == rank() || !page(peer).shown.call.read(theirs)) return;
  const std::string mismatch = announcer_.find_mismatch(rank(), peer, theirs);
  if (!mismatch.empty()) fail_and_raise({Code::mismatch, peer, mismatch});
}

std::vector<Whereabouts> MappedGroup::read_all() const {
  std::vector<Whereabouts> all(world());
  for (int peer = 0; peer < world(); ++peer) all[peer] = read(page(peer).shown);
  return all;
}

namespace {

// In 10 ms each; a waiting rank moves about as often. One that says it waits and does not move is
// stopped, or others have taken its processor: the second passes.
constexpr int kBeatsToMove = 10;
constexpr int kBeatsWithoutProcessor = 50;

}  // namespace

// Goes on publishing its wait meanwhile: other ranks may search for the culprit too. One that waits
// in another communicator may give up there before this rank has done searching.
MappedGroup::Culprit MappedGroup::find_culprit(const Awaited& awaited, PublishedWait& published) {
  const auto before = read_all();
  Culprit culprit = {.rank = awaited.peer, .where = before[awaited.peer]};
  for (int beat = 1; beat <= kBeatsWithoutProcessor && !failed(); ++beat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    published.publish(awaited);
    if (beat < kBeatsToMove) continue;
    const auto after = read_all();
    const int late = find_late(before, after, awaited.peer, rank());
    const bool is_elsewhere = culprit.rank == late && culprit.where.elsewhere.waits != 0;
    if (!is_elsewhere || after[late].elsewhere.waits != 0)
      culprit = {.rank = late, .where = after[late]};
    if (!says_it_waits(after[late])) break;
  }
  return culprit;
}

void MappedGroup::give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) {
  // The wait stays published until all ranks know why it ends: a peer that searches for the culprit
  // at the same time would else find this rank waiting for no other.
  PublishedWait published(*this);
  const bool waits = awaited.peer != Error::kNoRank;
  const Culprit found =
      waits ? find_culprit(awaited, published) : Culprit{.rank = rank(), .where = {}};
  const int culprit = found.rank;
  raise_if_failed();
  if (ready()) return;
  std::string blame;
  if (waits && culprit != awaited.peer) {
    blame = sentence("; in the end all wait for rank ", culprit);
  }
  fail_and_raise(
      {Code::timeout, culprit,
       sentence(describe(awaited, rank()), " for ", base::show_duration(policy().timeout), blame,
                " (", rendezvous_->describe(culprit), ")",
                culprit == rank() ? "" : "; " + describe_doing(culprit, found.where))});
}

void MappedGroup::sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) {
  page(rank()).doorbell.sleep(until - base::now(), [&] { return failed() || ready(); });
}

}  // namespace plait::comm
