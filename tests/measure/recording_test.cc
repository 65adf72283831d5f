#include "measure/recording.h"

#include <gtest/gtest.h>

#include <vector>

#include "plait/communicator.h"

namespace plait::measure {
namespace {

// Makes the records of a rank whose clock is `behind` rank 0's, with three runs in rank 0's time.
std::vector<std::byte> pack_of(int rank, std::int64_t behind,
                               const std::vector<TimeInterval>& runs) {
  Trace trace(rank);
  for (const TimeInterval& run : runs)
    trace.flight(Lane::compute, "fused", {run.begin - behind, run.end - behind});
  trace.flight(Lane::comm, "chunk", {runs[0].begin - behind, runs[0].begin - behind + 5});
  trace.set_clock_offset(behind);
  return trace.pack();
}

TEST(Recordings, TakeTheTimesOfAllRanksOnOneClock) {
  const std::vector<TimeInterval> first = {{1000, 1300}, {2000, 2100}, {3000, 3200}};
  const std::vector<TimeInterval> second = {{1010, 1310}, {2010, 2110}, {2990, 3190}};
  const Recorded all = recorded_of({pack_of(0, 0, first), pack_of(1, 1'000'000, second)});
  ASSERT_EQ(all.runs.size(), 1U);  // the one of median length
  EXPECT_EQ(all.runs[0].begin, 2990);
  EXPECT_EQ(all.runs[0].end, 3200);
  ASSERT_EQ(all.ranks.size(), 2U);
  EXPECT_EQ(all.ranks[1].records.back().begin, 1010);
}

TEST(Recordings, AreOnRankZeroAlone) {
  run_in_threads(3, [](Communicator& comm) {
    Recording recording(comm);
    for (const char* name : {"serial", "fused"}) recording.run(name, [] {});
    const Recorded all = recording.collect();
    const bool first = comm.rank() == 0;
    EXPECT_EQ(all.packs.size(), first ? 3U : 0U);
    EXPECT_EQ(all.ranks.size(), first ? 3U : 0U);
    EXPECT_EQ(all.runs.size(), first ? 2U : 0U);
  });
}

}  // namespace
}  // namespace plait::measure
