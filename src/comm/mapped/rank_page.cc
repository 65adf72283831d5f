#include "comm/mapped/rank_page.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/futex.h"

namespace plait::comm {
namespace {

using Words = std::array<std::uint64_t, sizeof(Tag) / sizeof(std::uint64_t)>;

}  // namespace

void Doorbell::ring() {
  // Only the compiler must keep the caller's store before this load; the processor is made to by
  // the sleeper's heavy fence.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_relaxed) == 0) return;  // pairs with sleep()'s increment
  rings_.fetch_add(1, std::memory_order_release);              // pairs with sleep()'s load
  base::futex_wake_all(rings_);
}

void Doorbell::sleep(base::Nanoseconds longest, base::FunctionRef<bool()> ready) {
  struct Counted {
    explicit Counted(std::atomic<std::uint32_t>& sleepers) : count(sleepers) {
      count.fetch_add(1,
                      std::memory_order_seq_cst);  // before the last look; pairs with ring()'s load
    }
    ~Counted() { count.fetch_sub(1, std::memory_order_relaxed); }  // no thread acts on it
    std::atomic<std::uint32_t>& count;
  };
  constexpr base::Nanoseconds kUnfencedNap = 50 * base::kMicrosecond;
  const Counted counted(sleepers_);
  const std::uint32_t seen = rings_.load(std::memory_order_acquire);  // pairs with ring()
  if (!base::heavy_fence()) longest = std::min(longest, kUnfencedNap);
  if (!ready()) base::futex_wait(rings_, seen, longest);
}

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
// (seq_cst) in which read() looks at it: of two ranks' exchanges one is the later, and that rank
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
        std::memory_order_acquire);  // pairs with write(): the version is looked at after
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

// Memory ordering: the text is written before the word names its agreement (release); a rank that
// finds it named (acquire, in part()) reads the whole text. bring() and give_up() change the word
// from the same value, so that one of them comes too late, and all ranks see which.
bool Standing::bring(std::uint64_t agreement, const std::string& text) {
  std::array<char, kMostBytes + 1>& place = texts_[agreement % 2];
  const std::size_t length = std::min(text.size(), kMostBytes);
  std::uint64_t before = 2 * (agreement - 1);
  // A rank that was given up leaves its texts as they are: others may read them.
  if (word_.load(std::memory_order_relaxed) != before) return false;
  std::memcpy(place.data(), text.data(), length);
  place[length] = '\0';
  return word_.compare_exchange_strong(before, 2 * agreement, std::memory_order_release,
                                       std::memory_order_relaxed);
}

void Standing::give_up(std::uint64_t agreement) {
  std::uint64_t word = word_.load(std::memory_order_relaxed);  // the exchange checks it
  while (word % 2 == 0 && word / 2 < agreement &&
         !word_.compare_exchange_weak(word, word + 1, std::memory_order_relaxed)) {
  }
}

Standing::Part Standing::part(std::uint64_t agreement) const {
  const std::uint64_t word = word_.load(std::memory_order_acquire);  // pairs with bring()
  if (word / 2 >= agreement) return Part::brought;
  return word % 2 == 0 ? Part::not_yet : Part::given_up;
}

std::string Standing::text(std::uint64_t agreement) const { return texts_[agreement % 2].data(); }

void AnnouncedWait::write(const Wait& wait) {
  word_.store(std::uint64_t{wait.start} << 48 | std::uint64_t{wait.beat} << 32 |
                  static_cast<std::uint32_t>(wait.peer + 1),
              std::memory_order_relaxed);
}

}  // namespace plait::comm
