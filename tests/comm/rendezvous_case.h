// Ranks that find each other at their job's meeting place, for the tests of what they say if they
// don't.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "comm/core/build_name.h"
#include "comm/meet/meeting_place.h"
#include "comm/meet/pending_connections.h"
#include "conformance/ranks.h"
#include "plait/collectives.h"

namespace plait::rendezvous_case {

inline CommunicatorOptions options_for(const Place& place, std::chrono::milliseconds timeout) {
  return {.transport = "shm", .place = place, .timeout = timeout};
}

// Long enough for a busy machine.
inline constexpr std::chrono::milliseconds kLong{30'000};
inline constexpr std::chrono::milliseconds kShort{500};
inline constexpr std::chrono::seconds kTimeToMeet{2};  // of some ranks, while others are missing

inline Error error_of(const CommunicatorOptions& options) {
  try {
    Communicator::connect(options);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "rank " << options.place->rank << " connected";
  return {Code::system, "", Error::kNoRank};
}

inline void expect_error(const CommunicatorOptions& options, Code code, int culprit,
                         const std::string& sentence) {
  const Error error = error_of(options);
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_EQ(error.culprit(), culprit) << error.what();
  EXPECT_EQ(std::string(error.what()), sentence);
}

inline void expect_group(const Place& place) {
  Communicator comm = Communicator::connect(options_for(place, kLong));
  EXPECT_EQ(sum_of_ones(comm), static_cast<float>(place.world));
}

// A socket's flags in the kernel's table, from listen() on: one that is only bound refuses callers.
inline constexpr const char* kListens = " 00010000 ";

inline void await_listener(const std::string& job) {
  const std::string wanted = base::sentence('@', comm::shm::name_of_job(job));
  for (int tries = 0; tries < 20'000; ++tries) {
    std::ifstream table("/proc/net/unix");
    for (std::string line; std::getline(table, line);) {
      if (line.ends_with(wanted) && contains(line, kListens)) return;
    }
    ::usleep(1000);
  }
  ADD_FAILURE() << "nobody listens at " << wanted;
}

inline std::string hello(int rank, int world) {
  return comm::shm::write(
      {.rank = rank, .world = world, .pid = ::getpid(), .build = std::string(comm::build_name())});
}

// Processes that are not ranks 0, 1, 2, ... in this order.
inline void fork_all(const std::vector<std::function<void()>>& processes) {
  fork_ranks(static_cast<int>(processes.size()), [&](int index) { processes[index](); });
}

}  // namespace plait::rendezvous_case
