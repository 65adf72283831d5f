// A team of OpenMP's, as a caller of plait may have one. Its files are compiled with -fopenmp.
#pragma once

#include <omp.h>

#include <atomic>
#include <functional>
#include <utility>

namespace plait {

// OpenMP orders a team's fork and join; the atomics say so again, because the thread sanitizer
// can't see into its library.
class OmpTeam {
 public:
  explicit OmpTeam(std::function<void(int)> body) : body_(std::move(body)) {}

  // body(0), body(1), ... once on each thread; returns how many there were.
  int run(int threads) {
    ended_.store(0, std::memory_order_relaxed);
    forked_.store(true, std::memory_order_release);  // pairs with run_one()
    fork(threads, *this);
    return ended_.load(std::memory_order_acquire);  // pairs with run_one()
  }

 private:
  // Only passes a reference to threads, in a way that the sanitizer would take for a race.
  [[gnu::no_sanitize_thread]] static void fork(int threads, OmpTeam& team) {
#pragma omp parallel num_threads(threads) default(none) shared(team)
    team.run_one(omp_get_thread_num());
  }

  void run_one(int thread) {
    (void)forked_.load(std::memory_order_acquire);  // pairs with run()
    body_(thread);
    ended_.fetch_add(1, std::memory_order_release);  // pairs with run()
  }

  std::function<void(int)> body_;
  std::atomic<bool> forked_{false};
  std::atomic<int> ended_{0};
};

}  // namespace plait
