// Decisions that ranks make together.
#include "tune/agree.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "conformance/ranks.h"

namespace plait::tune {
namespace {

TEST(Agreement, OnTimesIsTheSlowestRanks) {
  run_as_threads(3, [](Communicator& comm) {
    EXPECT_EQ(slowest(10.0 * (comm.rank() == 1 ? 7 : 1), comm), 70);
    EXPECT_EQ(least(5 - comm.rank(), comm), 3);
  });
}

TEST(Agreement, TakesTheTextOfThoseWhoHaveOne) {
  run_as_threads(3, [](Communicator& comm) {
    const auto mine = comm.rank() == 1 ? std::optional<std::string>("a\n") : std::nullopt;
    EXPECT_EQ(agree_on("caches", mine, comm), "a\n");
    EXPECT_EQ(agree_on("caches", std::nullopt, comm), std::nullopt);
    EXPECT_EQ(agree_on("caches", "", comm), "");
  });
}

TEST(Agreement, IsRefusedOnEveryRankWhereTwoDiffer) {
  run_as_threads(3, [](Communicator& comm) {
    const auto mine = comm.rank() == 0
                          ? std::nullopt
                          : std::optional(std::string(static_cast<std::size_t>(comm.rank()), '\n'));
    expect_error(Code::mismatch,
                 "ranks 1 and 2 have different plan caches, "
                 "of 1 lines and of 2 lines, the first different line being 2: ",
                 [&] { agree_on("plan caches", mine, comm); });
    expect_error(Code::mismatch, "ranks 0 and 2 have different settings, \"yes\" and \"no\"",
                 [&] { agree_on("settings", comm.rank() == 2 ? "no" : "yes", comm); });
    // No rank waits for another one.
    EXPECT_EQ(slowest(comm.rank(), comm), 2);
  });
}

}  // namespace
}  // namespace plait::tune
