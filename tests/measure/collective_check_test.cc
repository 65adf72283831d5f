// Checks that ranks make together (app/measure/collective_check.h).
#include "measure/collective_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "conformance/ranks.h"

namespace plait::measure {
namespace {

// `refusing`: the ranks whose own check fails.
void expect_same_error(const std::vector<int>& refusing) {
  run_in_processes(3, [&](Communicator& comm) {
    const bool refuses = std::find(refusing.begin(), refusing.end(), comm.rank()) != refusing.end();
    const auto check = [&] {
      if (refuses) base::fail(Code::system, "rank ", comm.rank(), " has no room");
    };
    if (comm.rank() == refusing.front()) {
      const Error error = expect_error(Code::system, [&] { refusal_of_all(comm, check); });
      EXPECT_EQ(error.what(), base::sentence("rank ", comm.rank(), " has no room"));
    } else {
      EXPECT_EQ(refusal_of_all(comm, check), Code::system);
    }
  });
}

TEST(CollectiveCheck, PassesWhereNoRankRefuses) {
  run_in_processes(
      3, [](Communicator& comm) { EXPECT_EQ(refusal_of_all(comm, [] {}), std::nullopt); });
}

TEST(CollectiveCheck, FailsOnAllRanksWhereOneRefuses) {
  for (int rank = 0; rank < 3; ++rank) expect_same_error({rank});
}

TEST(CollectiveCheck, FailsWithTheSameErrorOnAllRanks) { expect_same_error({1, 2}); }

}  // namespace
}  // namespace plait::measure
