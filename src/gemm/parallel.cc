#include "gemm/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

namespace plait::gemm {
namespace {

// The first exception of several threads. Memory ordering: the winner writes first_ after its
// exchange, and it is read after the region's end, which orders it after all that ran inside.
class FirstError {
 public:
  template <class Body>
  void guard(Body&& body) noexcept {
    try {
      body();
    } catch (...) {
      if (!taken_.exchange(true, std::memory_order_relaxed)) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr first_;
};

// OpenMP's own fork and join, said again in atomics: the thread sanitizer can't see into libgomp.
class Joined {
 public:
  void fork() { forked_.store(true, std::memory_order_release); }        // pairs with begin()
  void begin() const { (void)forked_.load(std::memory_order_acquire); }  // pairs with fork()
  void end() { ended_.fetch_add(1, std::memory_order_release); }         // pairs with join()
  void join() const { (void)ended_.load(std::memory_order_acquire); }    // pairs with end()

 private:
  std::atomic<bool> forked_{false};
  std::atomic<int> ended_{0};
};

}  // namespace

int thread_count(int wanted) {
  if (omp_in_parallel() != 0) return 1;
  return wanted > 0 ? wanted : std::max(1, omp_get_max_threads());
}

void on_threads(int threads, base::FunctionRef<void(int)> body) {
  if (threads <= 1) {
    body(0);
    return;
  }
  FirstError error;
  Joined joined;
  joined.fork();
#pragma omp parallel num_threads(threads) default(none) shared(error, joined, body)
  {
    joined.begin();
    error.guard([&] { body(omp_get_thread_num()); });
    joined.end();
  }
  joined.join();
  error.rethrow();
}

void parallel_for(std::int64_t n, int threads, base::FunctionRef<void(std::int64_t)> body) {
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  const int count = static_cast<int>(std::min<std::int64_t>(thread_count(threads), n));
  on_threads(count, [&](int) {
    for (;;) {
      // Relaxed: the counter only hands out numbers.
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n || failed.load(std::memory_order_relaxed)) return;
      try {
        body(i);
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
        throw;
      }
    }
  });
}

}  // namespace plait::gemm
