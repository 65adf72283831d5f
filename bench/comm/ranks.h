// Ranks for measuring: threads, or forked processes of this program, each pinned to a processor.
//
//   run_ranks({.ranks = 2, .transport = "shm"}, [&](BenchRank& self) {
//     const auto results = race(self.comm, contenders, effort);
//     if (self.comm.rank() == 0) keep(results);     // rank 0 runs in the calling process
//   });
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "plait/communicator.h"

namespace plait::bench {

struct RankGroup {
  int ranks = 2;
  std::string transport = "shm";  // or "threads"
  std::optional<Link> link = {};
};

struct BenchRank {
  static constexpr std::size_t kCommonBytes = std::size_t{320} << 20;

  Communicator& comm;
  std::byte* common;  // kCommonBytes of memory that all ranks see, initially zero
};

// Returns when all ranks have ended. Throws what rank 0 threw, or Error{peer_lost} if another rank
// failed; that rank has written the reason to stderr.
void run_ranks(const RankGroup& group, const std::function<void(BenchRank&)>& body);

// Pins the calling thread to one of the processors that it may use; the same one for the same rank.
void pin(int rank);

}  // namespace plait::bench
