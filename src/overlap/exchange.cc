#include "overlap/exchange.h"

#include <algorithm>
#include <bit>

namespace plait::overlap {

Exchange::Exchange(comm::Group& group, int ways)
    : group_(group),
      posted_(static_cast<std::size_t>(ways) * static_cast<std::size_t>(world())),
      taken_(posted_.size()) {
  for (int step = 1; step < world(); ++step) peers_.push_back((rank() + step) % world());
}

// Sizes are rounded up to a power of two, so that operators of nearly the same size share one.
MailboxDesc Exchange::mailbox_for(int ways, std::size_t chunk_bytes) {
  constexpr std::size_t kLeast = 4096;
  return {.slots = ways * kSlotsPerWay, .slot_bytes = std::bit_ceil(std::max(chunk_bytes, kLeast))};
}

void Exchange::begin(const Tag& tag) {
  tag_ = tag;
  std::fill(posted_.begin(), posted_.end(), 0U);
  std::fill(taken_.begin(), taken_.end(), 0U);
}

void Exchange::look_after() {
  constexpr base::Nanoseconds kBetweenLooks = 10 * base::kMillisecond;
  mailbox_->help();
  group_.raise_if_failed();
  if (group_.clock() != nullptr) return;  // simulated ranks cannot be lost
  const base::Nanoseconds now = base::now();
  if (now - looked_at_ < kBetweenLooks) return;
  looked_at_ = now;
  if (peers_.empty()) return;
  const comm::Awaited here = {.peer = rank(), .tag = tag_of(out(Way::out, peers_.front()))};
  group_.examine(&here, [] { return true; });
}

void Exchange::post(Way way, int peer, std::size_t bytes) {
  const std::uint32_t chunk = out(way, peer);
  mailbox_->post(peer, slot(way, chunk), tag_of(chunk), bytes);
  ++posted_[index(way, peer)];
  ++moves_;
}

void Exchange::release(Way way, int source) {
  mailbox_->release(source, slot(way, in(way, source)));
  ++taken_[index(way, source)];
  ++moves_;
}

}  // namespace plait::overlap
