#include "comm/core/polling.h"

#include <utility>

namespace plait::comm {
namespace {

constexpr PollTimes kPeerPolls = {.first = 0, .between = 50 * base::kMillisecond};

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

void Polling::poll() {
  const std::unique_lock alone(polling_, std::try_to_lock);
  if (!alone.owns_lock()) return;
  const Nanoseconds now = base::now();
  if (!patience_) patience_.emplace(group_.policy(), kPeerPolls, now);
  const auto refused = refused_.exchange(0, std::memory_order_relaxed);
  if (refused != 0) missing_ = refused;
  patience_->note_poll(now, refused != 0);
  if (moved_.load(std::memory_order_relaxed)) {
    moved_.store(false, std::memory_order_relaxed);
    patience_->renew(now);
  }
  if (patience_->must_poll_peers(now)) poll_peers(now);
}

void Polling::poll_peers(Nanoseconds now) {
  const std::uint64_t missing = std::exchange(missing_, 0);
  if (missing == 0) {
    published_.end();
    group_.examine(nullptr, [] { return false; });
    return;
  }
  const Awaited awaited = unpacked(missing);
  published_.publish(awaited);
  // The chunk of a peer that has left may have come since the last poll: the peer is blamed only if
  // the next call finds that the chunk was polled for in vain once more.
  bool has_left = false;
  group_.examine(&awaited, [&] {
    has_left = true;
    return missing != given_up_;
  });
  given_up_ = has_left ? missing : 0;
  // Only the program's next poll can tell whether it has come meanwhile.
  if (patience_ && patience_->is_over(now)) group_.give_up(awaited, [] { return false; });
}

}  // namespace plait::comm
