// Threads inside a rank, from OpenMP's pool, which torch and oneDNN share.
//
// Inside a parallel region of the caller's, everything runs on the calling thread. Bodies round to
// nearest and keep denormals, whatever the calling thread or a thread of the pool has set.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"

namespace plait::base {

// OpenMP ends the process if it can't start as many threads as requested.
inline constexpr int kMostThreads = 1024;

// Refuses a negative number, and one above kMostThreads.
void check_threads(int threads, std::string_view who);

// The number of threads that `wanted` stands for. 0 means OpenMP's default, which OMP_NUM_THREADS
// sets. In a process that was forked after threads ran here it is 1, because the pool exists only
// in the parent, and OpenMP would wait for it.
int thread_count(int wanted);

// Sets what 0 stands for from now on, in calls from this thread.
void set_thread_count(int threads);

// Calls body(i) for every i in [0, n), in any order, on up to `threads` threads (0: see above).
// When all have ended, throws the first exception that a body threw.
void parallel_for(std::int64_t n, int threads, FunctionRef<void(std::int64_t)> body);

// Calls body(thread) once on each of `threads` threads, numbered from 0.
void on_threads(int threads, FunctionRef<void(int)> body);

}  // namespace plait::base
