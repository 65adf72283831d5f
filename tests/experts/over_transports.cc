#include "experts/over_transports.h"

#include <chrono>
#include <thread>
#include <vector>

#include "experts/batch.h"
#include "plait/collectives.h"

namespace plait {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExpertsOver);

TEST_P(ExpertsOver, RanksGiveTheBitsOfOne) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(world()), 0);
  for (int rank = 0; rank < world(); ++rank)
    rows[static_cast<std::size_t>(rank)] = rank == 1 ? 0 : 120 + 30 * rank;
  const Experts whole(kTravelling, Dtype::bf16, "", false);
  const Experts cut(kInParts, Dtype::bf16, "", false);
  const Batch batch(kTravelling, rows);
  const std::vector<std::byte> of_whole = by_one_rank(whole, batch);
  const std::vector<std::byte> of_cut = by_one_rank(cut, batch);
  run([&](Communicator& comm) {
    for (const bool replicated : {false, true}) {
      for (const Schedule schedule : {Schedule::serial, Schedule::fused}) {
        if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const ExpertsOptions options = {
            .schedule = schedule, .replicated = replicated, .threads = 1};
        expect_bits(comm, whole, batch, options, of_whole);
        expect_bits(comm, cut, batch, options, of_cut);
      }
    }
    barrier(comm);
  });
}

}  // namespace plait
