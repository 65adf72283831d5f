// Experts over transports, and a rank that is lost in the middle of an exchange.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "conformance/lost_ranks.h"
#include "conformance/one_plan.h"
#include "experts/batch.h"
#include "experts/over_transports.h"
#include "plait/collectives.h"

namespace plait {
namespace {

const RankMaker kThreads = {.name = "threads", .run = run_as_threads};
INSTANTIATE_TEST_SUITE_P(Threads, ExpertsOver, worlds_of(kThreads, {1, 2, 3, 5}), case_name);
const RankMaker kLinked = {.name = "linked", .run = run_as_threads, .link = "1gbit,50us"};
INSTANTIATE_TEST_SUITE_P(Linked, ExpertsOver, worlds_of(kLinked, {2, 3}), case_name);

// Ranks that followed other schedules would refuse one another.
TEST(Experts, FollowThePlanOfTheirSource) {
  const Experts experts(kTravelling, Dtype::bf16, "", false);
  const Batch batch(experts.desc, {20, 20});
  const std::vector<std::byte> wanted = by_one_rank(experts, batch);
  const OnePlan serial("serial");
  const OnePlan parts("pipelined parts=2");  // they have none
  run_in_threads(2, [&](Communicator& comm) {
    const bool is_first = comm.rank() == 0;
    const ExpertsOptions by_hand = {.schedule = Schedule::serial, .threads = 1};
    const ExpertsOptions by_plan = {.plans = &serial, .threads = 1};
    expect_bits(comm, experts, batch, is_first ? by_hand : by_plan, wanted);
    const ExpertsOptions fused = {.schedule = Schedule::serial, .plans = &parts, .threads = 1};
    expect_bits(comm, experts, batch, is_first ? ExpertsOptions{.threads = 1} : fused, wanted);
    barrier(comm);
  });
  EXPECT_TRUE(serial.asked.starts_with("op=experts m=")) << serial.asked;
}

// All others wait for its numbers of rows, and for nothing else of it.
TEST(ExpertsOfALateRank, AreAwaitedUntilTheDeadlineNamesIt) {
  const Experts experts(kTravelling, Dtype::bf16, "", false);
  run_in_threads(3, [&](Communicator& comm) {
    const Batch batch(experts.desc, {20, 20, 20});
    ExpertParallelMLP layer(experts.desc, comm, {.threads = 1});
    RankCall mine(experts, batch, batch.first_row(comm.rank()), 20, layer.experts_of(comm.rank()));
    layer.forward(mine.call());  // so that there is a mailbox
    barrier(comm);
    set_timeout(comm, std::chrono::milliseconds(300));
    try {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
      layer.forward(mine.call());
      ADD_FAILURE() << "rank 1 was not late";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::timeout) << error.what();
      EXPECT_EQ(error.culprit(), 1) << error.what();
      EXPECT_TRUE(contains(error.what(), "expert_parallel_mlp")) << error.what();
    }
  });
}

#ifdef __SANITIZE_THREAD__
const RankMaker kTcp = {.name = "tcp", .run = run_threads_over_tcp};
INSTANTIATE_TEST_SUITE_P(Tcp, ExpertsOver, worlds_of(kTcp, {2, 3}), case_name);
#else
const RankMaker kShm = {.name = "shm", .run = run_in_processes};
const RankMaker kTcp = {.name = "tcp", .run = run_over_tcp, .sees_calls = false};
const RankMaker kMixed = {.name = "mixed", .run = over_hosts({0, 0, 1}), .one_host = false};
INSTANTIATE_TEST_SUITE_P(Shm, ExpertsOver, worlds_of(kShm, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, ExpertsOver, worlds_of(kTcp, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Mixed, ExpertsOver, worlds_of(kMixed, {3}), case_name);

// A single expert, of rank 0.
Experts one_of_rank_0(std::int64_t hidden) {
  return Experts({.hidden = hidden,
                  .inner = 2,
                  .experts = 1,
                  .top = 1,
                  .activation = ExpertActivation::silu,
                  .ranks = {0}},
                 Dtype::bf16, "", false);
}

// Rows of 4 MiB, which no socket takes at once: a rank returns when others need no call of it to
// get its results.
TEST(ExpertsOverTcp, LeaveNothingUnsentWhenTheyReturn) {
  const Experts experts = one_of_rank_0(std::int64_t{1} << 20);
  Batch batch(experts.desc, {0, 2});
  batch.ids = {0, 0};
  run_over_tcp(2, [&](Communicator& comm) {
    using Clock = std::chrono::steady_clock;
    ExpertParallelMLP layer(experts.desc, comm, {.threads = 1});
    const bool is_first = comm.rank() == 0;
    RankCall mine(experts, batch, 0, is_first ? 0 : 2, layer.experts_of(comm.rank()));
    layer.forward(mine.call());  // so that there is a mailbox
    barrier(comm);
    const auto begin = Clock::now();
    layer.forward(mine.call());
    if (is_first) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    } else {
      EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(1300));
    }
    barrier(comm);
  });
}

// Rank 0 sleeps whenever more rows come. The rows that have woken it count when its wait asks
// again.
TEST(ExpertsOverTcp, GoOnWhenRowsComeToARankThatSleeps) {
  const Experts experts = one_of_rank_0(std::int64_t{1} << 14);
  Batch batch(experts.desc, {0, 16});
  std::fill(batch.ids.begin(), batch.ids.end(), 0);
  run_over_tcp(2,
               [&](Communicator& comm) {
                 ExpertParallelMLP layer(experts.desc, comm, {.threads = 1});
                 const bool is_first = comm.rank() == 0;
                 RankCall mine(experts, batch, 0, is_first ? 0 : 16, layer.experts_of(comm.rank()));
                 ExpertsForward call = mine.call();
                 int naps = is_first ? 0 : 40;
                 call.poll = [&] {
                   if (naps-- > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
                 };
                 layer.forward(call);
                 barrier(comm);
               },
               {.timeout = std::chrono::seconds(10)});
}

// Rank 1 dies when its hook is called for the third time: it has sent some of its rows, and the
// others wait for the rest. A deadline is minutes away.
void lose_a_rank(const RunRanks& run, const ExpertsDesc& desc, const ExpertsOptions& options) {
  run(3,
      [&](Communicator& comm) {
        const Experts experts(desc, Dtype::bf16, "", false);
        const Batch batch(experts.desc, {400, 400, 400});
        ExpertParallelMLP layer(experts.desc, comm, options);
        RankCall mine(experts, batch, batch.first_row(comm.rank()), 400,
                      layer.experts_of(comm.rank()));
        int polls = 0;
        const std::function<void()> poll = [&] {
          if (++polls == 3) die();
        };
        ExpertsForward call = mine.call();
        if (comm.rank() == 1) call.poll = poll;
        barrier(comm);
        expect_loss_of(1, [&] {
          for (;;) layer.forward(call);
        });
      },
      {});
}

TEST(ExpertsWithoutARank, NameItOverSharedMemory) {
  lose_a_rank(run_in_processes, kTravelling, {.schedule = Schedule::serial, .threads = 1});
  lose_a_rank(run_in_processes, kTravelling, {.schedule = Schedule::fused, .threads = 1});
}

TEST(ExpertsWithoutARank, NameItOverTcp) {
  lose_a_rank(run_over_tcp, kInParts, {.schedule = Schedule::fused, .threads = 1});
}
#endif

}  // namespace
}  // namespace plait
