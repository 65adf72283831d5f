#include "trace/ring.h"

#include <algorithm>
#include <bit>

namespace plait::trace {
namespace {

using Words = std::array<std::uint64_t, 7>;

constexpr std::uint64_t pair(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

Words to_words(const Entry& entry) {
  return {entry.begin,
          entry.end,
          std::bit_cast<std::uint64_t>(entry.label),
          static_cast<std::uint64_t>(entry.args.bytes),
          static_cast<std::uint64_t>(entry.args.flops),
          pair(static_cast<std::uint32_t>(entry.args.peer),
               static_cast<std::uint32_t>(entry.args.chunk)),
          pair(static_cast<std::uint32_t>(entry.kind), static_cast<std::uint32_t>(entry.lane))};
}

Entry to_entry(const Words& words) {
  return {.kind = static_cast<Kind>(words[6] >> 32),
          .lane = static_cast<Lane>(words[6]),
          .label = std::bit_cast<const char*>(words[2]),
          .begin = words[0],
          .end = words[1],
          .args = {.bytes = static_cast<std::int64_t>(words[3]),
                   .flops = static_cast<std::int64_t>(words[4]),
                   .peer = static_cast<std::int32_t>(words[5] >> 32),
                   .chunk = static_cast<std::int32_t>(words[5])}};
}

}  // namespace

// One slot more than `capacity`, because one may be half overwritten.
Ring::Ring(std::size_t capacity, Stopwatch stopwatch)
    : mask_(std::bit_ceil(capacity + 1) - 1),
      slots_(std::make_unique<Slot[]>(mask_ + 1)),
      stopwatch_(stopwatch) {}

// Memory ordering: every word of record i is released after pushed_ was set to i, and pushed_ is
// set to i + 1 after all its words. A reader that finds one word of record i therefore finds
// pushed_ >= i; a reader that finds pushed_ > i finds all its words.
void Ring::push(const Entry& entry) noexcept {
  // only this thread writes it
  const std::uint64_t index = pushed_.load(std::memory_order_relaxed);
  const Words words = to_words(entry);
  Slot& to = slot(index);
  for (std::size_t i = 0; i < words.size(); ++i) {
    to.words[i].store(words[i], std::memory_order_release);  // pairs with read()
  }
  pushed_.store(index + 1, std::memory_order_release);  // pairs with read()
}

// Only a read-modify-write is sure to read the last value that the former owner wrote.
void Ring::adopt() noexcept { pushed_.fetch_add(0, std::memory_order_acq_rel); }

Ring::Content Ring::read() const {
  const std::uint64_t end = pushed_.load(std::memory_order_acquire);  // pairs with push()
  const std::uint64_t begin = end > mask_ ? end - mask_ : 0;
  std::vector<Entry> entries;
  entries.reserve(end - begin);
  for (std::uint64_t index = begin; index < end; ++index) {
    Words words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = slot(index).words[i].load(std::memory_order_acquire);  // pairs with push()
    }
    entries.push_back(to_entry(words));
  }

  // The writer may have continued meanwhile. It writes record `now` into the slot that held record
  // now - mask_ - 1, so any record older than the newest mask_ may be torn.
  const std::uint64_t now = pushed_.load(std::memory_order_acquire);  // pairs with push()
  const std::uint64_t whole = std::clamp(now > mask_ ? now - mask_ : 0, begin, end);
  entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(whole - begin));
  return {.dropped = whole, .entries = std::move(entries)};
}

std::uint64_t Ring::dropped() const {
  const std::uint64_t pushed = pushed_.load(std::memory_order_relaxed);  // a count; orders nothing
  return pushed > mask_ ? pushed - mask_ : 0;
}

}  // namespace plait::trace
