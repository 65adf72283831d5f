// Gathers of bytes from all ranks (comm/session/gather.h).
#include "comm/session/gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "conformance/ranks.h"

namespace plait::comm {
namespace {

TEST(Gather, HasEachRanksValueUnrounded) {
  struct Value {
    double number;
    std::int64_t rank;
  };
  for (const RunRanks runner : {run_as_threads, run_in_processes}) {
    runner(3, [](Communicator& comm) {
      const double third = 1.0 / 3;
      const auto all = gather_values(Value{third + comm.rank(), comm.rank()}, comm);
      ASSERT_EQ(all.size(), 3U);
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(all[static_cast<std::size_t>(rank)].number, third + rank);
        EXPECT_EQ(all[static_cast<std::size_t>(rank)].rank, rank);
      }
    });
  }
}

TEST(Gather, HasEachRanksText) {
  run_as_threads(3, [](Communicator& comm) {
    const std::string mine(static_cast<std::size_t>(comm.rank()) * 5, 'x');
    const std::vector<std::string> wanted = {"", "xxxxx", "xxxxxxxxxx"};
    EXPECT_EQ(gather_text(mine, comm), wanted);
    EXPECT_EQ(gather_text("", comm), std::vector<std::string>(3));
  });
}

}  // namespace
}  // namespace plait::comm
