#include "comm/mapped/rank_page.h"

#include <algorithm>
#include <cstring>

#include "base/futex.h"

namespace plait::comm {

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
                      std::memory_order_seq_cst);  // before the last poll; pairs with ring()'s load
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

// Memory ordering: the text is written before the word names its agreement (release); a rank that
// finds it named (acquire, in part()) reads the whole text. bring() and give_up() change the word
// from the same value, so that one of them comes too late, and all ranks see which.
bool Standing::bring(std::uint64_t agreement, const std::string& text) {
  Text& place = texts_[agreement % 2];
  const std::size_t length = std::min(text.size(), kMostBytes);
  std::uint64_t before = 2 * (agreement - 1);
  // A rank that was given up leaves its texts as they are: others may read them.
  if (word_.load(std::memory_order_relaxed) != before) return false;
  for (std::size_t i = 0; i < length; ++i) place[i].store(text[i], std::memory_order_relaxed);
  place[length].store('\0', std::memory_order_relaxed);
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

std::string Standing::text(std::uint64_t agreement) const {
  std::string text;
  for (const std::atomic<char>& byte : texts_[agreement % 2]) {
    const char c = byte.load(std::memory_order_relaxed);
    if (c == '\0') break;
    text += c;
  }
  return text;
}

}  // namespace plait::comm
