// Threads inside a rank, by OpenMP: the pool that torch and oneDNN share.
//
// Inside a parallel region of somebody else's, everything runs on the thread that called. Bodies
// round to nearest and keep denormals, whatever that thread has set and a thread of the pool has
// not.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"

namespace plait::base {

// OpenMP ends the process where it can't start as many as it is asked for.
inline constexpr int kMostThreads = 1024;

// Refuses a number of threads that nobody can mean.
void check_threads(int threads, std::string_view who);

// How many threads `wanted` comes to here: 0 is what OpenMP would use, which OMP_NUM_THREADS sets.
// In a process that was forked after threads had worked here, it is one: the pool stayed behind,
// and OpenMP would wait for it.
int thread_count(int wanted);

// What 0 comes to from now on, for what this thread calls.
void set_thread_count(int threads);

// body(i) for every i in [0, n), in any order, by up to `threads` threads (0: as above). The first
// exception that a body throws is thrown here, when all have ended.
void parallel_for(std::int64_t n, int threads, FunctionRef<void(std::int64_t)> body);

// body(thread) once on each of `threads` threads, numbered from 0.
void on_threads(int threads, FunctionRef<void(int)> body);

}  // namespace plait::base
