#include "comm/mapped/mapped_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/futex.h"
#include "base/text.h"

namespace plait::comm {

using base::sentence;

namespace {

// How often a rank that waits for survivors looks whether others have died.
constexpr Nanoseconds kBetweenLooks = 2 * base::kMillisecond;

// A page of zero bytes is a RankPage on which nothing has happened.
RankPage* page_in(const base::Region& region) { return reinterpret_cast<RankPage*>(region.data()); }

}  // namespace

MappedGroup::MappedGroup(const std::shared_ptr<Rendezvous>& rendezvous, const WaitPolicy& policy,
                         const Rendezvous::Watch& watch)
    : MappedGroup(rendezvous, policy, rendezvous->share(sizeof(RankPage), "group", watch)) {}

MappedGroup::MappedGroup(const std::shared_ptr<Rendezvous>& rendezvous, const WaitPolicy& policy,
                         std::vector<base::Region> regions)
    : BlamingGroup(rendezvous->rank(), rendezvous->world(), policy,
                   page_in(regions[rendezvous->rank()])->shown),
      rendezvous_(rendezvous),
      regions_(std::move(regions)) {
  for (const base::Region& region : regions_) pages_.push_back(page_in(region));
  // A kernel that refuses makes sleepers nap shortly instead (see Doorbell).
  static_cast<void>(base::register_for_heavy_fences());
  rendezvous_->see_leaving_by([this](int peer) { return has_left(peer); });
}

// Memory ordering: the record is written before ended_by names it (release); a rank that finds it
// named (acquire, in has_ended() and record_of()) reads the whole record.
void MappedGroup::end(End end, const Failure& failure) noexcept {
  record_first(end, failure);
  ring_all();
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
  ring_all();
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
                    sentence(describe(*awaited, rank()), "; rank ", awaited->peer,
                             show_process(awaited->peer), " has left the group")});
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
    fail_and_raise({Code::peer_lost, peer,
                    sentence(describe_poll(awaited, rank()), "; rank ", peer, show_process(peer),
                             " has died")});
  }
}

// A peer may be in another call than this rank was, or is: then one of them waits for a chunk that
// will never come, and the two tags say why. A peer that is ahead will report the mismatch itself.
void MappedGroup::examine_calls() {
  for (int peer = 0; peer < world(); ++peer) {
    Tag theirs;
    if (peer != rank() && page(peer).shown.call.read(theirs)) compare_with(peer, theirs);
  }
}

void MappedGroup::compare_calls() {
  announcer_.settle();
  examine_calls();
}

std::vector<BlamingGroup::Account> MappedGroup::accounts() const {
  std::vector<Account> all;
  all.reserve(pages_.size());
  for (const RankPage* page : pages_)
    all.push_back({.where = read(page->shown), .seen_at = base::now()});
  return all;
}

void MappedGroup::sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) {
  page(rank()).doorbell.sleep(until - base::now(), [&] { return failed() || ready(); });
}

void MappedGroup::ring_all() noexcept {
  for (int peer = 0; peer < world(); ++peer) ring(peer);
}

Regrouping::Parts MappedGroup::agree(const std::string& mine, Nanoseconds patience) {
  std::vector<Standing*> standings;
  standings.reserve(pages_.size());
  for (RankPage* page : pages_) standings.push_back(&page->standing);
  const auto sleep = [&](base::FunctionRef<bool()> ready) {
    interrupt_if_asked(nullptr);
    page(rank()).doorbell.sleep(kBetweenLooks, ready);
  };
  return comm::agree({.me = rank(),
                      .standings = std::move(standings),
                      .has_gone = [&](int peer) { return has_died(peer) || has_left(peer); },
                      .wake_all = [&] { ring_all(); },
                      .sleep = sleep},
                     ++agreements_, mine, patience);
}

// The agreement after this one is about whether the members have made the new group. One that has
// not brings a text that begins with '-'.
void MappedGroup::check_regrouping(const std::vector<int>& members) {
  interrupt_if_asked(nullptr);
  for (const int member : members) {
    const Standing& standing = page(member).standing;
    const bool has_failed = standing.part(agreements_ + 1) == Standing::Part::brought &&
                            standing.text(agreements_ + 1).starts_with('-');
    if (!has_failed && !has_died(member)) continue;
    throw Error(Code::peer_lost,
                sentence("survivors: rank ", member, show_process(member), " has ",
                         has_failed ? "not made the new group" : "died"),
                member);
  }
}

void MappedGroup::withdraw() noexcept {
  page(rank()).standing.give_up(agreements_ + 1);
  ring_all();
}

}  // namespace plait::comm
