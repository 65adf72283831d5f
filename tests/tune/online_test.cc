// Plans that are measured while a program runs.
#include "tune/online.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "conformance/ranks.h"
#include "ops/problem.h"

namespace plait::tune {
namespace {

PlanKey problem(int m = 64) {
  return parse_plan_key("op=matmul_all_reduce n=256 k=256 ranks=3 transport=threads m=" +
                        std::to_string(m));
}

// The time of a call, by a table that makes one plan the fastest; ranks differ.
std::int64_t time_of(const Plan& plan, const Plan& fastest, int rank) {
  return (plan == fastest ? 500 : 1000) + 10 * rank;
}

// Remembers the problem of the calls that ask.
struct Keyed final : PlanSource {
  explicit Keyed(const PlanSource& of) : source(of) {}
  std::optional<Plan> find(const PlanKey& of) const override { return source.find(of); }
  std::optional<Plan> next(const PlanKey& of) const override { return source.next(key = of); }
  void took(const PlanKey& of, const Plan& plan, std::int64_t nanoseconds) const override {
    source.took(of, plan, nanoseconds);
  }
  const PlanSource& source;
  mutable PlanKey key = {};
};

// With one plan there is no second round.
std::size_t calls_of_a_plan() { return Online::calls(1); }

TEST(Online, TriesPlansAndSettlesOnTheFastestOnAllRanksAlike) {
  const plan::CostModel model(plan::built_in_profile());
  const auto plans = plans_to_try(model, problem());
  ASSERT_GE(plans.size(), 3U);
  for (const Plan& fastest : plans) {
    run_as_threads(3, [&](Communicator& comm) {
      std::vector<plan::PlanCache::Entry> settled;
      const Online online(comm, model,
                          {.settled = [&](const PlanKey& key, const plan::PlanCache::Entry& entry) {
                            EXPECT_EQ(key, problem());
                            settled.push_back(entry);
                          }});
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
      EXPECT_LE(calls, fastest.schedule == Schedule::serial ? alone : Online::calls(plans.size()));
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
  const std::vector<Plan> plans = plans_to_try(model, problem());
  const Plan& lucky = plans[2];
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    const std::size_t first_round = plans.size() * calls_of_a_plan();
    for (std::size_t call = 0; call < Online::calls(plans.size()); ++call) {
      const Plan plan = *online.next(problem());
      const bool is_luck = plan == lucky && call < first_round;
      if (call >= first_round) {
        EXPECT_TRUE(plan == lucky || plan == model.choose(problem()) ||
                    plan.schedule == Schedule::serial);
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
    EXPECT_EQ(online.next(problem()), plans_to_try(model, problem())[1]);
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
    // The group has failed, and the next call is told so when it has its plan.
    EXPECT_EQ(online.next(problem()), parse_plan("serial"));
  });
}

// A program must not be slow for long because a plan is.
TEST(Online, DropsAPlanThatIsFarTooSlowTwice) {
  const plan::CostModel model(plan::built_in_profile());
  const Plan slow = plans_to_try(model, problem())[1];
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    int calls = 0;
    for (std::size_t call = 0; call < Online::calls(5); ++call) {
      const Plan plan = *online.next(problem());
      calls += plan == slow ? 1 : 0;
      // Only one rank sees it.
      online.took(problem(), plan, plan == slow && comm.rank() == 1 ? 1400 : 1000);
    }
    EXPECT_EQ(calls, 3);  // the first warms up
  });
}

TEST(Online, TriesProblemsOfNearlyAsManyRowsTogether) {
  EXPECT_EQ(shared_problem(problem(7)).m, 7);
  EXPECT_EQ(shared_problem(problem(16)).m, 16);
  EXPECT_EQ(shared_problem(problem(17)).m, 20);
  EXPECT_EQ(shared_problem(problem(512)).m, 512);
  EXPECT_EQ(shared_problem(problem(513)).m, 640);
  EXPECT_EQ(shared_problem(shared_problem(problem(1000))).m, shared_problem(problem(1000)).m);
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    std::vector<PlanKey> settled;
    const Online online(
        comm, model, {.settled = [&](const PlanKey& key, const auto&) { settled.push_back(key); }});
    for (std::size_t call = 0; call < Online::calls(5); ++call) {
      const PlanKey key = problem(513 + static_cast<int>(call));
      const Plan plan = *online.next(key);
      online.took(key, plan, plan.schedule == Schedule::serial ? 1000 : 500);
    }
    ASSERT_EQ(settled.size(), 1U);
    EXPECT_EQ(settled[0], problem(640));
    EXPECT_EQ(online.next(problem(600)), online.next(problem(640)));
  });
}

// A network may become slower while a program runs.
TEST(Online, TriesAgainWhereCallsTakeLongerForAWhile) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    int settled = 0;
    int deviated = 0;
    const Online online(
        comm, model,
        {.settled = [&](const auto&, const auto&) { ++settled; }, .deviated = [&] { ++deviated; }});
    const auto call = [&](std::int64_t serial, std::int64_t others) {
      const Plan plan = *online.next(problem());
      online.took(problem(), plan, plan.schedule == Schedule::serial ? serial : others);
    };
    while (settled == 0) call(1000, 700);
    EXPECT_NE(online.next(problem()), parse_plan("serial"));
    for (int i = 0; i < 1000; ++i) call(1000, 750);
    EXPECT_EQ(settled + deviated, 1) << "they vary a little";
    for (int i = 0; i < 10'000 && settled == 1; ++i) call(1000, 1100);
    EXPECT_EQ(deviated, 1);
    EXPECT_EQ(settled, 2);
    EXPECT_EQ(online.next(problem()), parse_plan("serial"));
  });
}

TEST(Online, FollowsWhatAnEarlierRunHasFound) {
  const plan::CostModel model(plan::built_in_profile());
  const Plan found = parse_plan("pipelined parts=3");
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    online.know(problem(), {.plan = found, .nanoseconds = 1000, .serial = 1500});
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(online.next(problem()), found);
      online.took(problem(), found, 1000);
    }
  });
}

// Nothing can be told from such times; the model knows that it gains.
TEST(Online, FollowsTheModelWhereTimesScatterTooMuch) {
  const plan::CostModel model(plan::built_in_profile());
  PlanKey key = problem(512);
  key.n = key.k = 4096;
  key.link = parse_link("1gbit,20us");
  const Plan chosen = model.choose(key);
  ASSERT_NE(chosen.schedule, Schedule::serial);
  const std::size_t plans = plans_to_try(model, key).size();
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    for (std::size_t call = 0; call < Online::calls(5); ++call)
      online.took(key, *online.next(key), call / plans % 2 == 0 ? 1000 : 1250);
    EXPECT_EQ(online.next(key), chosen);
  });
}

// Warming up takes long, and other programs disturb a turn.
TEST(Online, KeepsAPlanThatIsSlowInTheFirstTurnAndOnceMore) {
  const plan::CostModel model(plan::built_in_profile());
  const Plan fastest = plans_to_try(model, problem())[1];
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    int calls = 0;
    for (std::size_t call = 0; call < Online::calls(5); ++call) {
      const Plan plan = *online.next(problem());
      if (plan == fastest) ++calls;
      const bool is_disturbed = calls == 1 || calls == 3;
      online.took(problem(), plan, plan != fastest ? 1000 : is_disturbed ? 3000 : 500);
    }
    EXPECT_EQ(online.next(problem()), fastest);
  });
}

// Another plan was lucky in the first round, and the second says nothing.
TEST(Online, FollowsTheModelWhereTheBestPlanIsNotTheFastestAgain) {
  const plan::CostModel model(plan::built_in_profile());
  PlanKey key = problem(512);
  key.n = key.k = 4096;
  key.link = parse_link("1gbit,20us");
  const Plan chosen = model.choose(key);
  const std::vector<Plan> plans = plans_to_try(model, key);
  ASSERT_GE(plans.size(), 3U);
  const Plan lucky = plans[1] == chosen ? plans[2] : plans[1];
  run_as_threads(3, [&](Communicator& comm) {
    const Online online(comm, model);
    const std::size_t first_round = plans.size() * calls_of_a_plan();
    for (std::size_t call = 0; call < Online::calls(5); ++call) {
      const Plan plan = *online.next(key);
      const std::size_t turn = call < first_round ? call / plans.size() : (call - first_round) / 3;
      const bool is_luck = plan == lucky && call < first_round;
      online.took(key, plan, is_luck ? 500 : turn % 2 == 0 ? 1000 : 1250);
    }
    EXPECT_EQ(online.next(key), chosen);
  });
}

// A later process would follow what was chance, and this one would for ever.
TEST(Online, KeepsNoDecisionThatIsNotClearAndTriesAgain) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    int settled = 0;
    int deviated = 0;
    const Online online(
        comm, model,
        {.settled = [&](const auto&, const auto&) { ++settled; }, .deviated = [&] { ++deviated; }});
    int tried = 0;  // calls of plans that differ from the decision's
    const auto call = [&](std::int64_t serial, std::int64_t others) {
      const auto decided = online.decision(problem());
      const Plan plan = *online.next(problem());
      if (!decided) ++tried;
      online.took(problem(), plan, plan.schedule == Schedule::serial ? serial : others);
    };
    const auto decide = [&](std::int64_t serial, std::int64_t others) {
      while (!online.decision(problem())) call(serial, others);
    };
    decide(1000, 995);
    EXPECT_EQ(online.next(problem()), parse_plan("serial"));
    EXPECT_EQ(settled, 0);
    // The network becomes a little slower, which plans other than serial hide.
    tried = 0;
    for (std::size_t i = 1; i < Online::kFirstRetry; ++i) call(1100, 995);
    EXPECT_EQ(tried, 0);
    call(1100, 995);
    decide(1100, 995);
    EXPECT_GT(tried, 0);
    EXPECT_EQ(settled, 1);
    EXPECT_EQ(deviated, 0);
    EXPECT_NE(online.next(problem()), parse_plan("serial"));
    // A clear decision stays.
    tried = 0;
    for (std::size_t i = 0; i < 2 * Online::kFirstRetry + 1; ++i) call(1100, 995);
    EXPECT_EQ(tried, 0);
  });
}

// A program whose problems all differ would never finish their trials.
TEST(Online, LeavesTheRestOfManyProblemsToTheModel) {
  if (kIsSanitized) GTEST_SKIP() << "asks for nothing, and takes long";
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(2, [&](Communicator& comm) {
    const Online online(comm, model);
    PlanKey key = problem();
    key.world = 2;
    for (key.k = 1; key.k <= 1025; ++key.k) {
      EXPECT_EQ(online.tries(key), key.k <= 1024);
      online.next(key);
      EXPECT_EQ(online.tries(key), key.k <= 1024) << "asked again";
    }
  });
}

// One of five times is longer than serial's: that is enough for this program, and not for others.
TEST(Online, KeepsNoDecisionThatATimeSpeaksAgainst) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(3, [&](Communicator& comm) {
    int settled = 0;
    const Online online(comm, model, {.settled = [&](const auto&, const auto&) { ++settled; }});
    std::map<std::string, int> calls;
    while (!online.decision(problem())) {
      const Plan plan = *online.next(problem());
      const bool is_late = ++calls[name(plan)] % 5 == 3;
      const bool is_serial = plan.schedule == Schedule::serial;
      online.took(problem(), plan, is_serial ? 1000 : is_late ? 1001 : 900);
    }
    EXPECT_NE(online.next(problem()), parse_plan("serial"));
    EXPECT_EQ(settled, 0);
  });
}

TEST(Online, TriesAgainAfterTwiceAsManyCalls) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(2, [&](Communicator& comm) {
    const Online online(comm, model);
    PlanKey key = problem();
    key.world = 2;
    std::size_t tried = 0;
    const std::size_t calls = 6 * Online::kFirstRetry;
    for (std::size_t i = 0; i < calls; ++i) {
      if (!online.decision(key)) ++tried;
      online.took(key, *online.next(key), 1000);
    }
    const std::size_t of_a_trial = plans_to_try(model, key).size() * calls_of_a_plan();
    EXPECT_EQ(tried, 3 * of_a_trial);
  });
}

// With the operators: every rank counts alike, and bits don't depend on the plan.
TEST(Online, FollowsBlockingCalls) {
  const plan::CostModel model(plan::built_in_profile());
  run_as_threads(2, [&](Communicator& comm) {
    const Online online(comm, model);
    const Keyed source(online);
    const OpProblem one(Operator::matmul_all_reduce, 64, comm, 256, 96);
    std::vector<std::byte> first;
    for (std::size_t call = 0; call < Online::calls(5) + 2; ++call) {
      matmul_all_reduce(one.x.view, one.packed, one.out.view, comm,
                        {.plans = &source, .threads = 1});
      const auto* bytes = static_cast<const std::byte*>(one.out.view.data);
      if (first.empty()) first.assign(bytes, bytes + one.out.view.bytes());
      EXPECT_TRUE(std::equal(first.begin(), first.end(), bytes));
    }
    EXPECT_TRUE(online.decision(source.key));
  });
}

}  // namespace
}  // namespace plait::tune
