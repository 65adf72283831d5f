#include "heads/top_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "heads/loops.h"

namespace plait::heads {
namespace {

// The number of logits that are looked at together: most such runs hold none that is kept.
constexpr std::int64_t kTogether = 256;

// A whole number for each value, in the order of values: -0 equals 0, and NaNs come first.
std::uint32_t order_of(float value) {
  if (value != value) return std::numeric_limits<std::uint32_t>::max();
  constexpr std::uint32_t kSign = 0x80000000U;
  if (value == 0) return kSign;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

}  // namespace

TopEntry TopEntry::of(float value, std::int64_t id) {
  const std::uint32_t last_first = ~static_cast<std::uint32_t>(id);
  return {.key = std::uint64_t{order_of(value)} << 32 | last_first, .value = value};
}

void TopRows::add(std::int64_t at, std::int64_t first_id, const float* values, std::int64_t n) {
  const Loops& by = loops();
  const std::span<TopEntry> kept = row(at);
  for (std::int64_t begin = 0; begin < n; begin += kTogether) {
    const std::int64_t end = std::min(begin + kTogether, n);
    const bool is_full = kept.back().key != 0;
    if (is_full && !by.reaches(values + begin, end - begin, kept.back().value)) continue;
    for (std::int64_t i = begin; i < end; ++i) add(at, TopEntry::of(values[i], first_id + i));
  }
}

void TopRows::add(std::int64_t at, const TopEntry& entry) {
  const std::span<TopEntry> kept = row(at);
  if (entry.key <= kept.back().key) return;
  const auto place =
      std::upper_bound(kept.begin(), kept.end(), entry.key,
                       [](std::uint64_t key, const TopEntry& other) { return key > other.key; });
  std::copy_backward(place, kept.end() - 1, kept.end());
  *place = entry;
}

void TopRows::add(const TopRows& other) {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    add(static_cast<std::int64_t>(i) / k_, other.entries_[i]);
}

}  // namespace plait::heads
