// Ranks of a job on one host, and calls by which tests see whether they work together.
#pragma once

#include <string>
#include <thread>

#include "plait/collectives.h"
#include "plait/communicator.h"

namespace plait {

inline CommunicatorOptions shm_options(int rank, int world, const std::string& job) {
  return {.transport = "shm", .place = Place{.rank = rank, .world = world, .job = job}};
}

inline float sum_of_ones(Communicator& comm) {
  float sum = 1;
  all_reduce({&sum, 1}, comm);
  return sum;
}

inline void poll_all_reduce(Communicator& comm) {
  float sum = 1;
  Pending pending = start_all_reduce({&sum, 1}, {&sum, 1}, comm);
  while (!pending.done()) std::this_thread::yield();
}

}  // namespace plait
