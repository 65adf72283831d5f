#include "comm/mapped/mapped_group.h"

#include <algorithm>
#include <bit>
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
  std::uint32_t nobody = 0;
  page(0).ended_by[which].compare_exchange_strong(nobody, rank() + 1, std::memory_order_acq_rel);
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
  show_life(awaited);
  examine_lives(awaited);
  if (awaited == nullptr) return;
  examine_calls();
  if (awaited->peer == rank() || awaited->peer == Error::kNobody) return;
  if (has_left(awaited->peer) && !ready()) {
    fail_and_raise({Code::peer_lost, awaited->peer,
                    sentence(describe(*awaited, rank()), "; rank ", awaited->peer, " (",
                             rendezvous_->describe(awaited->peer), ") has left the group")});
  }
}

void MappedGroup::show_life(const Awaited* awaited) {
  if (awaited == nullptr) return;
  page(rank()).sign.write(
      {.doing = is_multiplying(*awaited, rank()) ? Sign::Doing::call_product : Sign::Doing::call,
       .at = base::now()});
}

// "rank 1 is in matmul_all_reduce, multiplying; last sign of life 12 ms ago"
std::string MappedGroup::doing_of(int peer) const {
  Tag tag;
  const std::string who = sentence("rank ", peer);
  if (!page(peer).call.read(tag)) return who + " has made no call of this group yet";
  const Sign sign = page(peer).sign.read();
  const std::string call(name(tag.operation));
  if (sign.doing == Sign::Doing::nothing) {
    return sentence(who, " is in no call of this group; its last was ", call);
  }
  // Namespaces of processes may have clocks of their own: none is behind this moment.
  const Nanoseconds ago = std::max<Nanoseconds>(base::now() - sign.at, 0);
  if (sign.doing == Sign::Doing::started) {
    return sentence(who, " has started ", call, ", and last asked for it ",
                    base::show_duration(ago), " ago");
  }
  const std::string is_in =
      sign.doing == Sign::Doing::product
          ? sentence(who, " multiplies; its last call of this group is ", call)
          : sentence(who, " is in ", call,
                     sign.doing == Sign::Doing::call_product ? ", multiplying" : "");
  if (sign.at == 0) return is_in + "; no sign of life since it began";
  constexpr Nanoseconds kSilence = base::kSecond;
  return ago < kSilence ? sentence(is_in, "; last sign of life ", base::show_duration(ago), " ago")
                        : sentence(is_in, "; no sign of life for ", base::show_duration(ago));
}

// Who has ended in good order has left before.
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
    const std::string waits = awaited == nullptr ? sentence("rank ", rank(), " looks around")
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
  page(rank()).call.settle();
  examine_calls();
}

// A peer may be in another call than this rank was, or is: then one of them waits for a chunk that
// will never come, and the two tags say why. A peer that is ahead will report the mismatch itself.
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

// Memory ordering: a thread that takes a ticket (acquire) continues the word that its last holder
// (release) left. Where more threads wait than there are tickets, the others' are not published.
int MappedGroup::begin_waiting(const Awaited& awaited, int ticket) noexcept {
  if (ticket != kNoTicket) {
    page(rank()).waits[ticket].renew(awaited.peer);
    return ticket;
  }
  std::uint32_t taken =
      tickets_.load(std::memory_order_relaxed);  // a guess; the exchange checks it
  for (;;) {
    const int free = std::countr_one(taken);
    if (free >= kWaits) return kNoTicket;
    if (!tickets_.compare_exchange_weak(taken, taken | 1U << free, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {  // pairs with end_waiting()
      continue;
    }
    page(rank()).waits[free].begin(awaited.peer);
    return free;
  }
}

void MappedGroup::end_waiting(int ticket) noexcept {
  page(rank()).waits[ticket].end();
  tickets_.fetch_and(~(1U << ticket), std::memory_order_release);  // pairs with begin_waiting()
}

std::vector<RankPage::Waits> MappedGroup::waits_of_all() const {
  std::vector<RankPage::Waits> all(world());
  for (int peer = 0; peer < world(); ++peer) {
    for (int ticket = 0; ticket < kWaits; ++ticket)
      all[peer][ticket] = page(peer).waits[ticket].read();
  }
  return all;
}

namespace {

// The rank that `suspect` waits for, seen from `me`; Error::kNobody where it waits for none, or
// says that it waits but has not moved. Among several threads' waits, the one counts that has
// lasted all the time: the others come and go. A wait for a rank that has been asked already is
// taken last.
int followed(const RankPage::Waits& before, const RankPage::Waits& after, int suspect,
             const std::vector<bool>& asked) {
  int best = Error::kNobody;
  int best_rank = 0;
  for (int ticket = 0; ticket < kWaits; ++ticket) {
    const Wait& wait = after[ticket];
    const bool in_range = wait.peer >= 0 && wait.peer < static_cast<int>(asked.size());
    const bool moves = wait.beat != before[ticket].beat || wait.start != before[ticket].start;
    if (!in_range || wait.peer == suspect || !moves) continue;
    const int rank = 1 + (wait.start == before[ticket].start ? 1 : 0) + (asked[wait.peer] ? 0 : 2);
    if (rank > best_rank) best = wait.peer;
    best_rank = std::max(rank, best_rank);
  }
  return best;
}

// Follows the waits from `suspect`: 1 waits for 2 waits for 3, and 3 waits for no rank, or says
// that it waits but has not moved.
int follow(const std::vector<RankPage::Waits>& before, const std::vector<RankPage::Waits>& after,
           int suspect, int asker) {
  const int first = suspect;
  std::vector<bool> asked(after.size());
  asked[asker] = true;
  for (std::size_t steps = 0; steps < after.size(); ++steps) {
    asked[suspect] = true;
    const int next = followed(before[suspect], after[suspect], suspect, asked);
    if (next == Error::kNobody || next == asker) return suspect;
    suspect = next;
  }
  return first;  // they wait for each other
}

bool says_it_waits(const RankPage::Waits& waits) {
  return std::any_of(waits.begin(), waits.end(), [](const Wait& wait) { return wait.peer >= 0; });
}

// In 10 ms each; a waiting rank moves about as often. One that says it waits and does not move is
// stopped, or others have taken its processor: the second passes.
constexpr int kBeatsToMove = 10;
constexpr int kBeatsWithoutProcessor = 50;

}  // namespace

// Goes on beating meanwhile: others may be looking for the culprit too.
int MappedGroup::find_culprit(int awaited_peer, KnownWait& known) {
  const auto before = waits_of_all();
  int culprit = awaited_peer;
  for (int beat = 1; beat <= kBeatsWithoutProcessor && !failed(); ++beat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    known.say({.peer = awaited_peer, .tag = {}});
    if (beat < kBeatsToMove) continue;
    const auto after = waits_of_all();
    culprit = follow(before, after, awaited_peer, rank());
    if (!says_it_waits(after[culprit])) break;
  }
  return culprit;
}

void MappedGroup::give_up(const Awaited& awaited) {
  // The wait stays published until all ranks know why it ends: a peer that looks for the culprit at
  // the same time would else find this rank waiting for no other.
  KnownWait known(*this);
  const bool waits = awaited.peer != Error::kNobody;
  const int culprit = waits ? find_culprit(awaited.peer, known) : rank();
  raise_if_failed();
  std::string blame;
  if (waits && culprit != awaited.peer) {
    blame = sentence("; in the end all wait for rank ", culprit);
  }
  fail_and_raise(
      {Code::timeout, culprit,
       sentence(describe(awaited, rank()), " for ", base::show_duration(policy().timeout), blame,
                " (", rendezvous_->describe(culprit), ")",
                culprit == rank() ? "" : "; " + doing_of(culprit))});
}

void MappedGroup::doze(Nanoseconds until, base::FunctionRef<bool()> ready) {
  page(rank()).doorbell.sleep(until - base::now(), [&] { return failed() || ready(); });
}

}  // namespace plait::comm
