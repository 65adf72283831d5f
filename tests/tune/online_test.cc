// Plans that are measured while a program runs.
#include "tune/online.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "ops/problem.h"
#include "tune/tuner.h"

namespace plait::tune {
namespace {

using conformance::expect_error;
using conformance::run_as_threads;

PlanKey problem(int m = 64) {
  return parse_plan_key("op=matmul_all_reduce n=256 k=256 ranks=3 transport=threads m=" +
                        std::to_string(m));
}

// The time of a call, by a table that makes one plan the fastest; ranks differ.
std::int64_t time_of(const Plan& plan, const Plan& fastest, int rank) {
  return (plan == fastest ? 500 : 1000) + 10 * rank;
}

// With one plan there is no second round.
std::size_t calls_of_a_plan() { return Online::calls(1); }

TEST(Online, TriesPlansAndSettlesOnTheFastestOnAllRanksAlike) {
  const plan::CostModel model(plan::built_in_profile());
  const auto plans = shortlist(model, problem(), 4);
  ASSERT_EQ(plans.size(), 5U);
  for (const Plan& fastest : plans) {
    run_as_threads(3, [&](Communicator& comm) {
      std::vector<plan::PlanCache::Entry> settled;
      const Online online(comm, model,
                          [&](const PlanKey& key, const plan::PlanCache::Entry& entry) {
                            EXPECT_EQ(key, problem());
                            settled.push_back(entry);
                          });
      std::set<std::string> tried;
      std::size_t calls = 0;
      for (; settled.empty() && calls < Online::calls(plans.size()); ++calls) {
        const Plan plan = *online.next(problem());
        tried.insert(name(plan));
        online.took(problem(), plan, time_of(plan, fastest, comm.rank()));
      }
      EXPECT_EQ(tried.size(), plans.size());
      // A plan that is faster than serial must be so again.
      const std::size_t alone = plans.size() * calls_of_a_plan();
      EXPECT_EQ(calls, fastest.schedule == Schedule::serial ? alone : Online::calls(plans.size()));
      ASSERT_EQ(settled.size(), 1U);
      EXPECT_EQ(settled[0].plan, fastest);
      EXPECT_EQ(settled[0].nanoseconds, 520);  // of the slowest rank
      EXPECT_EQ(online.next(problem()), fastest);
      EXPECT_EQ(online.find(problem()), fastest);
      online.took(problem(), fastest, 1);
      EXPECT_EQ(online.next(problem()), fastest);
    });
  }
}

// In the first round one of them was lucky.
TEST(Online, DecidesByTimesThatNobodyWasChosenBy) {
  const plan::CostModel model(plan::built_in_profile());
  const Plan lucky = shortlist(model, problem(), 4)[2];
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    for (std::size_t call = 0; call < Online::calls(5); ++call) {
      const Plan plan = *online.next(problem());
      const bool is_luck = plan == lucky && call < 5 * calls_of_a_plan();
      if (call >= 5 * calls_of_a_plan()) {
        EXPECT_TRUE(plan == lucky || plan.schedule == Schedule::serial);
      }
      online.took(problem(), plan, is_luck ? 500 : 1000);
    }
    EXPECT_EQ(online.next(problem()), parse_plan("serial"));
  });
}

TEST(Online, StaysSerialWhereNobodyIsClearlyFaster) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    for (std::size_t call = 0; call < Online::calls(5); ++call) {
      const Plan plan = *online.next(problem());
      const bool serial = plan.schedule == Schedule::serial;
      online.took(problem(), plan, serial ? 1000 : 995);
    }
    EXPECT_EQ(online.next(problem()), parse_plan("serial"));
  });
}

TEST(Online, TriesEachProblemForItself) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    const Plan first = *online.next(problem());
    online.took(problem(), first, 10);
    EXPECT_NE(online.next(problem()), first);
    EXPECT_EQ(online.next(problem(128)), first);
    // A plan from a source before this one is not a trial.
    online.took(problem(), parse_plan("pipelined parts=63"), 10);
    online.took(problem(), parse_plan("pipelined parts=63"), 10);
    EXPECT_EQ(online.next(problem()), shortlist(model, problem(), 4)[1]);
  });
}

// They would never all reach the comparison of times.
TEST(Online, RefusesTheCallsOfOtherRanks) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    PlanKey key = problem();
    key.world = 1;
    const Error error = expect_error(Code::invalid_argument, [&] { (void)online.next(key); });
    EXPECT_EQ(std::string(error.what()),
              "automatic_plans: these plans are for 3 ranks, and a call over 1 cannot "
              "try them: make automatic plans over the communicator of the call");
  });
}

// The plans belong to another group of the same size.
TEST(Online, SaysForWhatARankWaitsWhoseOthersDoNotCome) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    if (comm.rank() != 0) return;
    const Online online(comm, model);
    const Error error = expect_error(Code::peer_lost, [&] {
      for (std::size_t call = 0; call < Online::calls(5); ++call)
        online.took(problem(), *online.next(problem()), 100);
    });
    EXPECT_NE(std::string(error.what()).find("all ranks of the plans' communicator"),
              std::string::npos)
        << error.what();
  });
}

// With the operators: every rank counts alike, and bits don't depend on the plan.
TEST(Online, FollowsBlockingCalls) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(2, [&](Communicator& comm) {
    int settled = 0;
    const Online online(comm, model, [&](const auto&, const auto&) { ++settled; });
    const OpProblem one(Operator::matmul_all_reduce, 64, comm, 256, 96);
    std::vector<std::byte> first;
    for (std::size_t call = 0; call < Online::calls(5) + 2; ++call) {
      matmul_all_reduce(one.x.view, one.packed, one.out.view, comm,
                        {.plans = &online, .threads = 1});
      const auto* bytes = static_cast<const std::byte*>(one.out.view.data);
      if (first.empty()) first.assign(bytes, bytes + one.out.view.bytes());
      EXPECT_TRUE(std::equal(first.begin(), first.end(), bytes));
    }
    EXPECT_EQ(settled, 1);
  });
}

}  // namespace
}  // namespace plait::tune
