#include "comm/core/whereabouts.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/text.h"

namespace plait::comm {

using base::Nanoseconds;
using base::sentence;

namespace {

using Words = std::array<std::uint64_t, sizeof(Tag) / sizeof(std::uint64_t)>;

constexpr int kNoRank = -1;

// The rank that `suspect` waits for, seen from `me`; kNoRank where it waits for none, or
// says that it waits but has not moved. Among several threads' waits, the one counts that has
// lasted all the time: the others come and go. A wait for a rank that has been asked already is
// taken last.
int followed(const std::array<Wait, kWaits>& before, const std::array<Wait, kWaits>& after,
             int suspect, const std::vector<bool>& asked) {
  int best = kNoRank;
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

}  // namespace

// Memory ordering: a reader that finds the same even version before and after has read words that
// were written together. The words are atomics, so that reading them while they change is defined.
void AnnouncedCall::write(const Tag& tag) {
  const auto words = std::bit_cast<Words>(tag);
  const std::uint64_t version =
      version_.load(std::memory_order_relaxed);  // only the owner writes it
  version_.store(version + 1,
                 std::memory_order_relaxed);  // ordered before the words by their release
  for (std::size_t i = 0; i < words.size(); ++i) {
    words_[i].store(
        words[i],
        std::memory_order_release);  // pairs with read(): a new word shows the odd version
  }
  version_.store(version + 2, std::memory_order_release);  // pairs with read()
}

// Memory ordering: writes the version once more, now in the single order of all such operations
// (seq_cst) in which read() loads it: of two ranks' exchanges one is the later, and that rank
// then reads what the other has exchanged.
void AnnouncedCall::settle() {
  version_.exchange(version_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
}

bool AnnouncedCall::read(Tag& tag) const {
  const std::uint64_t before =
      version_.load(std::memory_order_seq_cst);  // pairs with write()'s last store, and settle()
  if (before == 0 || before % 2 != 0) return false;
  Words words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = words_[i].load(
        std::memory_order_acquire);  // pairs with write(): the version is loaded after
  }
  if (version_.load(std::memory_order_relaxed) != before)
    return false;  // ordered after the words by their acquire
  tag = std::bit_cast<Tag>(words);
  return true;
}

// Memory ordering: relaxed throughout. The word only helps to say which rank is late; no other
// memory is read because of it.
void AnnouncedWait::begin(int peer) {
  const Wait last = read();
  write({.peer = peer, .start = static_cast<std::uint16_t>(last.start + 1), .beat = last.beat});
}

void AnnouncedWait::renew(int peer) {
  const Wait last = read();
  write({.peer = peer, .start = last.start, .beat = static_cast<std::uint16_t>(last.beat + 1)});
}

void AnnouncedWait::end() {
  const Wait last = read();
  write({.peer = -1, .start = last.start, .beat = last.beat});
}

Wait AnnouncedWait::read() const {
  const std::uint64_t word = word_.load(std::memory_order_relaxed);
  return {.peer = static_cast<int>(word & 0xffffffffU) - 1,
          .start = static_cast<std::uint16_t>(word >> 48),
          .beat = static_cast<std::uint16_t>(word >> 32)};
}

// Memory ordering: relaxed throughout, as above. Threads of the rank may write at once: one of
// their signs is there afterwards, and each of them is true.
void SignOfLife::write(const Sign& sign) {
  word_.store(static_cast<std::uint64_t>(sign.at) << 3 | static_cast<std::uint64_t>(sign.doing),
              std::memory_order_relaxed);
}

void SignOfLife::rest() { write({.doing = Sign::Doing::nothing, .at = read().at}); }

Sign SignOfLife::read() const {
  const std::uint64_t word = word_.load(std::memory_order_relaxed);
  return {.doing = static_cast<Sign::Doing>(word & 7U),
          .at = static_cast<base::Nanoseconds>(word >> 3)};
}

void AnnouncedWait::write(const Wait& wait) {
  word_.store(std::uint64_t{wait.start} << 48 | std::uint64_t{wait.beat} << 32 |
                  static_cast<std::uint32_t>(wait.peer + 1),
              std::memory_order_relaxed);
}

// Memory ordering: relaxed, as above.
void AnnouncedElsewhere::write(const Elsewhere& elsewhere) {
  word_.store(std::bit_cast<std::uint64_t>(elsewhere), std::memory_order_relaxed);
}

Elsewhere AnnouncedElsewhere::read() const {
  return std::bit_cast<Elsewhere>(word_.load(std::memory_order_relaxed));
}

Whereabouts read(const Shown& shown) {
  Whereabouts where;
  where.has_call = shown.call.read(where.call) ? 1 : 0;
  where.sign = shown.sign.read();
  where.elsewhere = shown.elsewhere.read();
  for (int ticket = 0; ticket < kWaits; ++ticket) where.waits[ticket] = shown.waits[ticket].read();
  return where;
}

bool says_it_waits(const Whereabouts& where) {
  return std::any_of(where.waits.begin(), where.waits.end(),
                     [](const Wait& wait) { return wait.peer >= 0; });
}

std::string describe_doing(int rank, const Whereabouts& where) {
  const std::string subject = sentence("rank ", rank);
  if (where.elsewhere.waits != 0) {
    const std::string whom = where.elsewhere.peer < 0 ? "for a rank that is not in this one"
                                                      : sentence("for rank ", where.elsewhere.peer);
    const Operation operation = where.elsewhere.operation;
    return sentence(subject, " waits in another communicator, in ",
                    operation == Operation::custom ? "a mailbox" : name(operation), ", ", whom);
  }
  if (where.has_call == 0) return subject + " has made no call of this group yet";
  const Sign& sign = where.sign;
  const std::string call(name(where.call.operation));
  if (sign.doing == Sign::Doing::nothing) {
    return sentence(subject, " is in no call of this group; its last was ", call);
  }
  // Namespaces of processes may have clocks of their own: none is behind this moment.
  const Nanoseconds ago = std::max<Nanoseconds>(base::now() - sign.at, 0);
  if (sign.doing == Sign::Doing::started) {
    return sentence(subject, " has started ", call, ", and last asked for it ",
                    base::show_duration(ago), " ago");
  }
  const std::string is_in =
      sign.doing == Sign::Doing::product
          ? sentence(subject, " multiplies; its last call of this group is ", call)
          : sentence(subject, " is in ", call,
                     sign.doing == Sign::Doing::call_product ? ", multiplying" : "");
  if (sign.at == 0) return is_in + "; no sign of life since it began";
  constexpr Nanoseconds kSilence = base::kSecond;
  return ago < kSilence ? sentence(is_in, "; last sign of life ", base::show_duration(ago), " ago")
                        : sentence(is_in, "; no sign of life for ", base::show_duration(ago));
}

std::string disagreement(const Tag& mine, int rank, int peer, const Tag& theirs) {
  return sentence(name(mine.operation), ": rank ", rank, " and rank ", peer, " disagree on ",
                  difference(mine, theirs));
}

int find_late(const std::vector<Whereabouts>& before, const std::vector<Whereabouts>& after,
              int suspect, int asker) {
  const int first = suspect;
  std::vector<bool> asked(after.size());
  asked[asker] = true;
  for (std::size_t steps = 0; steps < after.size(); ++steps) {
    asked[suspect] = true;
    const int next = followed(before[suspect].waits, after[suspect].waits, suspect, asked);
    if (next == kNoRank || next == asker) return suspect;
    suspect = next;
  }
  return first;  // they wait for each other
}

void Announcer::call(const Tag& tag) noexcept {
  calls_[tag.call % calls_.size()].write(tag);
  shown_.call.write(tag);
  shown_.sign.write({.doing = Sign::Doing::call});
}

void Announcer::renew(bool multiplies) noexcept {
  shown_.sign.write(
      {.doing = multiplies ? Sign::Doing::call_product : Sign::Doing::call, .at = base::now()});
}

void Announcer::started(base::Nanoseconds asked_at) noexcept {
  shown_.sign.write({.doing = Sign::Doing::started, .at = asked_at});
}

void Announcer::product() const noexcept {
  shown_.sign.write({.doing = Sign::Doing::product, .at = base::now()});
}

// It is published as a wait too, by which the blame is led on.
void Announcer::elsewhere(const Elsewhere* elsewhere) noexcept {
  shown_.elsewhere.write(elsewhere == nullptr ? Elsewhere{} : *elsewhere);
  if (elsewhere != nullptr && elsewhere->peer >= 0) {
    elsewhere_ticket_ = begin_waiting(elsewhere->peer, elsewhere_ticket_);
  } else if (elsewhere_ticket_ != kNoTicket) {
    end_waiting(elsewhere_ticket_);
    elsewhere_ticket_ = kNoTicket;
  }
}

// Memory ordering: a thread that takes a ticket (acquire) continues the word that its last holder
// (release) left. Where more threads wait than there are tickets, the others' are not published.
int Announcer::begin_waiting(int peer, int ticket) noexcept {
  if (ticket != kNoTicket) {
    shown_.waits[ticket].renew(peer);
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
    shown_.waits[free].begin(peer);
    return free;
  }
}

void Announcer::end_waiting(int ticket) noexcept {
  shown_.waits[ticket].end();
  tickets_.fetch_and(~(1U << ticket), std::memory_order_release);  // pairs with begin_waiting()
}

std::string Announcer::find_mismatch(int rank, int peer, const Tag& theirs) const {
  Tag mine;
  if (!calls_[theirs.call % calls_.size()].read(mine)) return {};
  if (mine.call != theirs.call || mine == theirs) return {};
  return disagreement(mine, rank, peer, theirs);
}

}  // namespace plait::comm
