// The collectives that threads have started, in whichever communicator: a thread that waits for
// something else advances its own meanwhile (docs/design/0029).
//
// They belong to the thread that has used their communicator last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/clock.h"

namespace plait::comm {

using base::Nanoseconds;

class Executor;

// For the turns of loops that wait: does what can be done now for all that this thread has started,
// unless it is in a call of the same communicator. True: something has moved. An error there stays
// there, for the next call of that communicator; an exception of the caller's hook is passed on.
//
// Simulated ranks share a thread: each advances what is on its own clock.
bool advance_started(const Executor* clock = nullptr);

// True if it may have anything to do. A loop that sleeps wakes up every kNapBeside meanwhile, since
// what comes there wakes no sleeper here.
bool has_started() noexcept;
inline constexpr Nanoseconds kNapBeside = 200 * base::kMicrosecond;
inline Nanoseconds nap_of(Nanoseconds longest) {
  return has_started() ? std::min(longest, kNapBeside) : longest;
}

// The collectives under way in one communicator, as the thread that they belong to knows them. It
// lives as long as a thread knows of it.
class Started : public std::enable_shared_from_this<Started> {
 public:
  enum class Outcome : std::uint8_t { none_left, waits, moved };

  Started() = default;
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  virtual ~Started() = default;

  virtual Outcome advance(const Executor* clock) = 0;

  // True if this thread is in a call of the communicator.
  virtual bool is_in_use_here() const = 0;

 protected:
  bool has_owner() const { return owner_ != 0; }
  bool is_owned_here() const noexcept;

  // From now on it belongs to this thread, if there is anything; without memory to know of it,
  // to none.
  void set_owner(bool has_any) noexcept;
  // It belongs to no thread. The list of this one no longer knows it, or is about to be told so.
  void disown() noexcept { owner_ = 0; }
  void forget_here() noexcept;

 private:
  std::uint64_t owner_ = 0;  // a number that each thread has for itself; 0: none
};

}  // namespace plait::comm
