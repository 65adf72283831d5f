// Plans that come from a source: the same on all ranks, however unevenly the problem is cut.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/session/state.h"
#include "conformance/ranks.h"
#include "ops/operators.h"
#include "ops/problem.h"
#include "plait/error.h"

namespace plait {
namespace {

// Another plan for every size, so that ranks which ask about different ones hear different answers.
class Table final : public PlanSource {
 public:
  std::optional<Plan> find(const PlanKey& key) const override {
    asked.push_back(key);
    return Plan{.schedule = Schedule::pipelined,
                .parts = static_cast<int>((key.n + key.k) % 60) + 1};
  }
  mutable std::vector<PlanKey> asked;
};

struct Share {
  std::int64_t n;
  std::int64_t k;
};

// Rank r's is r more than rank 0's where it may be.
Share share_of(Operator op, int rank) {
  const OperatorTraits& traits = traits_of(op);
  return {.n = traits.shares_n ? 200 + rank : 200, .k = traits.shares_k ? 96 + rank : 96};
}

class PlansFromASource : public testing::TestWithParam<Operator> {};

INSTANTIATE_TEST_SUITE_P(Ops, PlansFromASource, testing::ValuesIn(communicating_operators()),
                         operator_name);

TEST_P(PlansFromASource, AreAskedForByTheWholeProblem) {
  const Operator op = GetParam();
  const OperatorTraits& traits = traits_of(op);
  run_as_threads(3, [&](Communicator& comm) {
    const auto [n, k] = share_of(op, comm.rank());
    const OpProblem problem(op, 40, comm, n, k);
    const Table table;
    Op ready = prepare(problem.desc(), comm, {.plans = &table});
    ready.run(problem.call());
    ASSERT_EQ(table.asked.size(), 6U);
    const PlanKey key = table.asked[0];  // a copy: asking again adds to them
    EXPECT_EQ(key.m, 40);
    EXPECT_EQ(key.n, traits.shares_n ? 603 : 200);
    EXPECT_EQ(key.k, traits.shares_k ? 291 : 96);
    EXPECT_EQ(key.world, 3);
    EXPECT_EQ(key.transport, "threads");
    EXPECT_EQ(key.out, Dtype::bf16);
    EXPECT_EQ(key.wire, traits.shares_k ? Dtype::f32 : Dtype::bf16);
    EXPECT_FALSE(key.link);
    EXPECT_EQ(parse_plan_key(name(key)), key);
    EXPECT_EQ(ready.plan(), table.find(key));
    PlanKey fewer = key;  // and as often as they can be halved
    for (const std::int64_t m : {40, 20, 10, 5, 2, 1}) {
      fewer.m = m;
      EXPECT_EQ(std::count(table.asked.begin(), table.asked.end(), fewer), m == 40 ? 2 : 1);
    }
  });
}

int hosts_asked_for(Communicator& comm) {
  const OpProblem problem(Operator::matmul_all_reduce, 40, comm);
  const Table table;
  prepare(problem.desc(), comm, {.plans = &table});
  EXPECT_FALSE(table.asked.empty());
  EXPECT_EQ(parse_plan_key(name(table.asked[0])), table.asked[0]);
  return table.asked[0].hosts;
}

// A plan tuned on one host is meant for a group of ranks on one host, also where it is a part of a
// job on several. How many ranks a host has may differ.
TEST(APlanSource, HearsOfTheHostsThatAGroupIsOn) {
  run_as_threads(5, [](Communicator& comm) {
    comm.state().set_host(comm.rank() < 3 ? "one" : "other");
    std::optional<Communicator> all = comm.split(0, comm.rank());
    EXPECT_EQ(hosts_asked_for(*all), 2);
    std::optional<Communicator> within = all->split(comm.rank() / 3, comm.rank());
    std::optional<Communicator> across = all->split(comm.rank() % 2, comm.rank());
    EXPECT_EQ(hosts_asked_for(*within), 1);
    EXPECT_EQ(hosts_asked_for(*across), 2);
  });
}

// Threads have one clock, and so one host.
TEST(APlanSource, HearsOfOneHostWhereRanksDoNotKnowTheirs) {
  run_as_threads(4, [](Communicator& comm) {
    comm.state().set_host("");
    std::optional<Communicator> pair = comm.split(comm.rank() / 2, comm.rank());
    EXPECT_EQ(hosts_asked_for(*pair), 1);
  });
}

TEST(APlanSource, HearsOfTheLinkAndOfWhatIsAskedFor) {
  run_as_threads(2,
                 [](Communicator& comm) {
                   const OpProblem problem(Operator::matmul_reduce_scatter, 40, comm);
                   const Table table;
                   prepare(problem.desc(), comm,
                           {.wire = Dtype::f16, .plans = &table, .threads = 1});
                   ASSERT_FALSE(table.asked.empty());
                   EXPECT_EQ(table.asked[0].link, parse_link("10gbit,3us"));
                   EXPECT_EQ(table.asked[0].wire, Dtype::f16);
                   EXPECT_EQ(table.asked[0].threads, 1);
                   EXPECT_EQ(table.asked[0].weight, "bf16");
                 },
                 {.link = parse_link("10gbit,3us")});
}

// It is packed within every call then, beside what the plan is of.
TEST(APlanSource, HearsWhetherTheWeightIsPlain) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, 40, comm);
    const Table table;
    prepare(problem.plain_desc(), comm, {.plans = &table});
    matmul_all_reduce(problem.x.view, problem.plain(), problem.out.view, comm, {.plans = &table});
    ASSERT_FALSE(table.asked.empty());
    EXPECT_EQ(table.asked[0].weight, "bf16:plain");
    EXPECT_EQ(table.asked.back(), table.asked[0]);
    EXPECT_EQ(parse_plan_key(name(table.asked[0])), table.asked[0]);
  });
}

TEST(APlanSource, GivesBlockingCallsTheSamePlanWithUnevenShares) {
  run_as_threads(3, [](Communicator& comm) {
    const auto [n, k] = share_of(Operator::matmul_all_reduce, comm.rank());
    const OpProblem problem(Operator::matmul_all_reduce, 40, comm, n, k);
    const Table table;
    for (int call = 0; call < 3; ++call) {
      matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, {.plans = &table});
    }
    EXPECT_EQ(table.asked.back().k, 291);
  });
}

// Ranks that ask a source tell each other their shares first: that is the operator's too.
void ask(const OpProblem& problem, Communicator& comm) {
  const Table table;
  matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, {.plans = &table});
}

TEST(AskingAPlanSource, NoticesADeath) {
  const std::string job = fresh_job();
  fork_ranks(3, [&](int rank) {
    const Place place = {.rank = rank, .world = 3, .job = job};
    Communicator comm = Communicator::connect({.transport = "shm", .place = place});
    const OpProblem problem(Operator::matmul_all_reduce, 40, comm);
    if (rank == 1) {
      ask(problem, comm);  // the others may still be in it
      ::_exit(0);          // as good as killed: nothing is destroyed
    }
    const Error error = expect_error(Code::peer_lost, [&] {
      for (;;) ask(problem, comm);
    });
    EXPECT_EQ(error.culprit(), 1) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).starts_with("matmul_all_reduce: ")) << error.what();
  });
}

TEST(AskingAPlanSource, EndsAtTheDeadline) {
  std::atomic<bool> has_ended{false};
  run_as_threads(2, [&](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, 40, comm);
    ask(problem, comm);
    set_timeout(comm, std::chrono::milliseconds(300));
    while (comm.rank() == 1 && !has_ended)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Error error = expect_error(Code::timeout, [&] { ask(problem, comm); });
    has_ended = true;
    EXPECT_EQ(error.culprit(), 1) << error.what();
    const std::string begin =
        "matmul_all_reduce: while ranks add up their sizes, for the choice of a plan: "
        "rank 0 waits for chunk 0 from rank 1";
    EXPECT_EQ(std::string(error.what()).substr(0, begin.size()), begin);
  });
}

// Each rank's error names the operator that it has called, whichever rank noticed: with an op that
// was prepared before, and with one that has yet to be.
TEST(AskingAPlanSource, RefusesARankThatAsksNone) {
  for (const bool is_prepared : {true, false}) {
    for (const Operator other : {Operator::matmul_all_reduce, Operator::matmul_reduce_scatter}) {
      run_as_threads(2, [&](Communicator& comm) {
        const bool asks = comm.rank() == 0;
        const Operator op = asks ? Operator::matmul_all_reduce : other;
        const OpProblem problem(op, 40, comm);
        const Table table;
        const auto call = [&](const OpOptions& options) {
          const auto run = op == Operator::matmul_all_reduce ? plait::matmul_all_reduce
                                                             : plait::matmul_reduce_scatter;
          run(problem.x.view, problem.packed, problem.out.view, comm, options);
        };
        const OpOptions fused = {.plan = parse_plan("fused")};
        if (is_prepared && other == Operator::matmul_all_reduce) call(fused);
        const Error error =
            expect_error(Code::mismatch, [&] { call(asks ? OpOptions{.plans = &table} : fused); });
        const std::string begin =
            std::string(name(op)) +
            (asks ? ": while ranks add up their sizes, for the choice of a plan: " : ": rank ");
        EXPECT_EQ(std::string(error.what()).substr(0, begin.size()), begin) << error.what();
      });
    }
  }
}

// All ranks hear what a poll hook has thrown on one of them, in its own words.
TEST(AnOperator, LeavesAnErrorOfItsPollHookAsItIs) {
  const auto told = [](Code code) {
    run_as_threads(2, [code](Communicator& comm) {
      const OpProblem problem(Operator::matmul_all_reduce, 40, comm);
      const auto poll = [&] {
        if (comm.rank() == 1) throw Error(code, "barrier: of other ranks");
      };
      const Error error = expect_error(code, [&] {
        matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, {.poll = poll});
      });
      EXPECT_STREQ(error.what(), code == Code::mismatch
                                     ? "poll hook of matmul_all_reduce: barrier: of other ranks"
                                     : "barrier: of other ranks");
    });
  };
  told(Code::system);
  told(Code::mismatch);
}

}  // namespace
}  // namespace plait
