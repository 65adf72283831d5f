#include "base/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <typeinfo>
#include <utility>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/process.h"

namespace plait::base {
namespace {

// Keeps an exception of several threads. A thread whose exception fails a group makes others raise
// the group's Error, perhaps sooner than its own is kept: a caller's own kind, also one derived
// from Error, comes first. Memory ordering: the winner writes after its exchange. Both are read
// after the parallel region, whose end orders them after all that ran inside.
class FirstError {
 public:
  template <class Body>
  void guard(Body&& body) noexcept {
    try {
      body();
    } catch (const Error& error) {
      (typeid(error) == typeid(Error) ? error_ : other_).keep(std::current_exception());
    } catch (...) {
      other_.keep(std::current_exception());
    }
  }
  void rethrow() const {
    if (other_.first != nullptr) std::rethrow_exception(other_.first);
    if (error_.first != nullptr) std::rethrow_exception(error_.first);
  }

 private:
  struct Kept {
    void keep(std::exception_ptr exception) {
      if (!taken.exchange(true, std::memory_order_relaxed)) first = std::move(exception);
    }

    std::atomic<bool> taken{false};
    std::exception_ptr first;
  };

  Kept error_;
  Kept other_;
};

// One parallel region of several threads. OpenMP orders its fork and join; the atomics repeat that
// order, because the thread sanitizer can't see into libgomp.
class Team {
 public:
  explicit Team(FunctionRef<void(int)> body) : body_(body) {}

  void fork() { forked_.store(true, std::memory_order_release); }  // pairs with run()
  void run(int thread) {
    (void)forked_.load(std::memory_order_acquire);  // pairs with fork()
    const DefaultFloats floats;
    error_.guard([&] { body_(thread); });
    ended_.fetch_add(1, std::memory_order_release);  // pairs with join()
  }
  void join() const {
    (void)ended_.load(std::memory_order_acquire);  // pairs with run()
    error_.rethrow();
  }

 private:
  std::atomic<bool> forked_{false};
  std::atomic<int> ended_{0};
  FunctionRef<void(int)> body_;
  FirstError error_;
};

// It only passes a reference to other threads, in a way that the sanitizer would report as a race.
[[gnu::no_sanitize_thread]] void run_team(int threads, Team& team) {
#pragma omp parallel num_threads(threads) default(none) shared(team)
  team.run(omp_get_thread_num());
}

// Memory ordering: the guard is made before its address is stored (release), which pool_is_lost()
// loads (acquire).
std::atomic<const ForkGuard*> pool{nullptr};

void remember_pool() {
  static const auto* const guard = new ForkGuard;  // never destroyed: threads may outlive statics
  pool.store(guard, std::memory_order_release);
}

bool pool_is_lost() {
  const ForkGuard* guard = pool.load(std::memory_order_acquire);
  return guard != nullptr && guard->in_child();
}

}  // namespace

void check_threads(int threads, std::string_view who) {
  PLAIT_CHECK(threads >= 0 && threads <= kMostThreads, who, ": threads=", threads,
              " is not between 0 and ", kMostThreads);
}

int thread_count(int wanted) {
  if (omp_in_parallel() != 0 || pool_is_lost()) return 1;
  return wanted > 0 ? wanted : std::clamp(omp_get_max_threads(), 1, kMostThreads);
}

void set_thread_count(int threads) { omp_set_num_threads(threads); }

void on_threads(int threads, FunctionRef<void(int)> body) {
  if (threads <= 1) {
    const DefaultFloats floats;
    body(0);
    return;
  }
  remember_pool();
  Team team(body);
  team.fork();
  run_team(threads, team);
  team.join();
}

void parallel_for(std::int64_t n, int threads, FunctionRef<void(std::int64_t)> body) {
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

}  // namespace plait::base
