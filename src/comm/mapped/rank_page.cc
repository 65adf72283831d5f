#include "comm/mapped/rank_page.h"

#include <algorithm>

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

}  // namespace plait::comm
