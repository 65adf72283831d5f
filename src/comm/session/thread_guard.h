// Refuses a second thread in a communicator, which serves one at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/session/membership.h"

namespace plait::comm {

class ThreadGuard {
 public:
  explicit ThreadGuard(const Membership& membership) : membership_(membership) {}

  // Throws where another thread is in it. False: this thread is in it already, and has to end()
  // only the outermost of its calls.
  //
  // Memory ordering: a thread that finds no other in it (acquire) also finds what the last one has
  // left behind (release, in end()), however the program has handed the communicator over. Relaxed
  // otherwise: a thread finds itself only where it has written itself, and where it finds another
  // it reads nothing more.
  bool begin() {
    const auto me = this_thread();
    if (user_.load(std::memory_order_relaxed) == me) return false;
    std::uintptr_t found = 0;
    if (!user_.compare_exchange_strong(found, me, std::memory_order_acquire,
                                       std::memory_order_relaxed)) [[unlikely]] {
      return begin_late();
    }
    last_.store(me, std::memory_order_relaxed);
    return true;
  }

  // True if this thread has made the last call, or the guard itself. Memory ordering: relaxed; for
  // a sentence.
  bool was_used_last() const { return last_.load(std::memory_order_relaxed) == this_thread(); }

  // True if this thread is in a call. Memory ordering: relaxed; only this thread writes it so.
  bool is_in_use_here() const { return user_.load(std::memory_order_relaxed) == this_thread(); }

  // An address that each thread has for itself, and that is even.
  static std::uintptr_t this_thread() {
    return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  }

  // For a step that a thread makes here while it waits elsewhere: false where any thread is in it,
  // this one too. Such a step is no call of the program's, so the call of another thread is not
  // refused meanwhile, but waits for its end(). Memory ordering: as begin().
  bool begin_step() noexcept {
    std::uintptr_t found = 0;
    return user_.compare_exchange_strong(found, this_thread() | kStep, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  void end() { user_.store(0, std::memory_order_release); }  // pairs with begin(), begin_step()

  // Waits until no thread makes a step in it, and lets none begin one. It is never ended.
  void close() noexcept;

 private:
  static constexpr std::uintptr_t kStep = 1;

  bool begin_late();
  [[noreturn]] void refuse() const;

  const Membership& membership_;
  std::atomic<std::uintptr_t> user_{0};
  std::atomic<std::uintptr_t> last_{this_thread()};
};

}  // namespace plait::comm
