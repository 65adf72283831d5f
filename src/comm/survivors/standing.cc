#include "comm/survivors/standing.h"

#include <algorithm>

#include "comm/core/deadline.h"

namespace plait::comm {

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

Regrouping::Parts agree(const StandingRanks& ranks, std::uint64_t agreement,
                        const std::string& mine, base::Nanoseconds patience) {
  const auto& standings = ranks.standings;
  const auto has_all_parts = [&] {
    return std::none_of(standings.begin(), standings.end(), [&](const Standing* one) {
      return one->part(agreement) == Standing::Part::not_yet;
    });
  };
  if (!standings[ranks.me]->bring(agreement, mine)) refuse_given_up(ranks.me, patience);
  ranks.wake_all();
  Deadline deadline(patience);
  while (!has_all_parts()) {
    ranks.sleep(has_all_parts);
    const bool is_late = deadline.is_over();
    for (int peer = 0; peer < static_cast<int>(standings.size()); ++peer) {
      if (standings[peer]->part(agreement) != Standing::Part::not_yet) continue;
      if (!is_late && !ranks.has_gone(peer)) continue;
      standings[peer]->give_up(agreement);
      ranks.wake_all();
    }
  }
  Regrouping::Parts parts(standings.size());
  for (std::size_t peer = 0; peer < standings.size(); ++peer) {
    if (standings[peer]->part(agreement) == Standing::Part::brought)
      parts[peer] = standings[peer]->text(agreement);
  }
  return parts;
}

}  // namespace plait::comm
