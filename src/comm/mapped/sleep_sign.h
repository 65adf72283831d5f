// Says that a rank sleeps, to peers that write into memory which it has mapped and that have other
// means to wake it than a futex: the rank sleeps on descriptors.
//
// Memory ordering: a peer stores what the rank waits for and then loads sleepers_; a thread of the
// rank increments sleepers_ and then polls. Neither may be reordered, or the rank sleeps through
// the store. As with the Doorbell, the sleeper pays for the fence (base::heavy_fence): a store
// before that fence is seen in its last poll, and a peer that stores after it sees the sleeper.
//
// If several peers find the rank asleep, the first to set is_called_ wakes it, and the others rely
// on that. A thread that is about to poll takes is_called_ back, both by exchanges (acquire and
// release): it either finds the exchange of such a peer, and with it what that peer has stored, or
// comes before it, and then that peer or an earlier one finds is_called_ clear and wakes the rank.
// Whatever wakes a rank must wake all of its threads that sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/futex.h"
#include "comm/mapped/rank_page.h"

namespace plait::comm {

class alignas(kLine) SleepSign {
 public:
  // A thread of the rank that may sleep at any time while this lives.
  class Sleeper {
   public:
    explicit Sleeper(SleepSign& sign) : sign_(sign) {
      sign_.sleepers_.fetch_add(1, std::memory_order_seq_cst);  // pairs with must_wake()'s load
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    // Relaxed: no thread acts on it.
    ~Sleeper() { sign_.sleepers_.fetch_sub(1, std::memory_order_relaxed); }

    // To be called before the last poll, and after the thread has noted which frames it knows of: a
    // frame that another thread takes from here on must be news to it, as it may be the one that
    // later posters rely on. Returns how long the thread may sleep: not for long where the kernel
    // offers no fence.
    base::Nanoseconds prepare(base::Nanoseconds longest) {
      constexpr base::Nanoseconds kUnfencedNap = 50 * base::kMicrosecond;
      sign_.is_called_.exchange(0, std::memory_order_acq_rel);  // pairs with must_wake()
      return base::heavy_fence() ? longest : std::min(longest, kUnfencedNap);
    }

   private:
    SleepSign& sign_;
  };

  // For a peer, right after its store: whether it is the one to wake the rank.
  bool must_wake() {
    // Keeps the compiler from moving the store below; the sleeper's fence keeps the processor.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) == 0) return false;  // pairs with Sleeper()
    return is_called_.exchange(1, std::memory_order_acq_rel) == 0;     // pairs with prepare()
  }

 private:
  std::atomic<std::uint32_t> sleepers_;
  std::atomic<std::uint32_t> is_called_;
};

}  // namespace plait::comm
