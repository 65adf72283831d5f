// Refuses a second thread in a communicator, which serves one at a time.
#pragma once

#include <atomic>

#include "comm/membership.h"

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
    const void* found = user_.load(std::memory_order_relaxed);
    if (found == this_thread()) return false;
    found = nullptr;
    if (!user_.compare_exchange_strong(found, this_thread(), std::memory_order_acquire,
                                       std::memory_order_relaxed)) [[unlikely]] {
      refuse();
    }
    return true;
  }

  void end() { user_.store(nullptr, std::memory_order_release); }  // pairs with begin()

 private:
  // An address that each thread has for itself.
  static const void* this_thread() { return __builtin_thread_pointer(); }
  [[noreturn]] void refuse() const;

  const Membership& membership_;
  std::atomic<const void*> user_{nullptr};
};

}  // namespace plait::comm
