#include "comm/polling.h"

#include <algorithm>

namespace plait::comm {
namespace {

// Between two polls much may have been computed: no more than this of it counts as waiting.
constexpr Nanoseconds kLongestPoll = 100 * base::kMillisecond;

constexpr Nanoseconds kBetweenLooks = 50 * base::kMillisecond;

}  // namespace

// channel << 42 | chunk << 10 | operation << 2 | room << 1 | 1: never 0, and a mailbox has at most
// 2^20 channels (check_desc).
std::uint64_t Polling::packed(int peer, int slot, const Tag& tag, bool room) const {
  const auto channel = static_cast<std::uint64_t>(peer) * slots_ + slot;
  const auto operation = static_cast<std::uint64_t>(tag.operation) & 0xffU;
  return channel << 42 | std::uint64_t{tag.chunk} << 10 | operation << 2 | (room ? 2U : 0U) | 1U;
}

Awaited Polling::unpacked(std::uint64_t refused) const {
  return {.peer = static_cast<int>((refused >> 42) / slots_),
          .tag = {.operation = static_cast<Operation>(refused >> 2 & 0xffU),
                  .chunk = static_cast<std::uint32_t>(refused >> 10)},
          .room = (refused & 2U) != 0};
}

void Polling::look() {
  const Nanoseconds now = base::now();
  const Nanoseconds last = polled_at_.exchange(now, std::memory_order_relaxed);
  if (const auto refused = refused_.exchange(0, std::memory_order_relaxed); refused != 0) {
    missing_.store(refused, std::memory_order_relaxed);
    const Nanoseconds passed = last == 0 ? 0 : std::clamp<Nanoseconds>(now - last, 0, kLongestPoll);
    waited_.fetch_add(passed, std::memory_order_relaxed);
  }
  if (now - looked_at_.load(std::memory_order_relaxed) < kBetweenLooks) return;
  looked_at_.store(now, std::memory_order_relaxed);
  look_carefully();
}

void Polling::look_carefully() {
  const std::unique_lock alone(looking_, std::try_to_lock);
  if (!alone.owns_lock()) return;
  const auto missing = missing_.exchange(0, std::memory_order_relaxed);
  if (missing == 0) {
    known_.end();
    group_.examine(nullptr, [] { return false; });
    return;
  }
  const Awaited awaited = unpacked(missing);
  known_.say(awaited);
  // The chunk of a peer that has left may have come since the last poll: the peer is blamed only if
  // the next look finds that the chunk was polled for in vain once more.
  bool has_left = false;
  group_.examine(&awaited, [&] {
    has_left = true;
    return missing != given_up_;
  });
  given_up_ = has_left ? missing : 0;
  if (waited_.load(std::memory_order_relaxed) >= group_.policy().timeout) group_.give_up(awaited);
}

}  // namespace plait::comm
