// A rank that dies, disagrees or is late in an operator: every other rank names it and the place.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "conformance/await.h"
#include "conformance/lost_ranks.h"
#include "conformance/ranks.h"
#include "ops/problem.h"
#include "plait/error.h"

namespace plait {
namespace {

// Rows enough that the exchange takes several chunks.
constexpr std::int64_t kRows = 300;

struct Scene {
  Operator op;
  const char* plan;
};

void PrintTo(const Scene& scene, std::ostream* out) {  // NOLINT: gtest's name
  *out << name(scene.op) << ' ' << scene.plan;
}

class EveryPlan : public testing::TestWithParam<Scene> {
 protected:
  static Plan plan() { return parse_plan(GetParam().plan); }

  // In processes, of which one may die.
  using Body = std::function<void(Communicator& comm, Op& op, const OpProblem& problem)>;
  static void run_in_three(const Body& body) {
    run_in_processes(3, [&](Communicator& comm) {
      const OpProblem problem(GetParam().op, kRows, comm, 700);
      Op op = prepare(problem.desc(), comm, {.plan = plan()});
      body(comm, op, problem);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ops, EveryPlan,
                         testing::Values(Scene{Operator::matmul_all_reduce, "serial"},
                                         Scene{Operator::matmul_all_reduce, "pipelined parts=4"},
                                         Scene{Operator::matmul_all_reduce, "fused"},
                                         Scene{Operator::matmul_reduce_scatter, "fused"},
                                         Scene{Operator::matmul_all_gather, "pipelined parts=4"},
                                         Scene{Operator::all_gather_matmul, "serial"},
                                         Scene{Operator::all_gather_matmul, "fused"},
                                         Scene{Operator::reduce_scatter_matmul,
                                               "pipelined parts=4"},
                                         Scene{Operator::all_reduce_matmul, "serial"}),
                         [](const auto& one) {
                           std::string text =
                               std::string(name(one.param.op)) + '_' + one.param.plan;
                           return text.substr(0, text.find(' '));
                         });

// The deadline is a minute away: a rank that does not notice fails by the test's own timeout.
TEST_P(EveryPlan, NoticesADeath) {
  run_in_three([](Communicator& comm, Op& op, const OpProblem& problem) {
    const int rank = comm.rank();
    op.run(problem.call());
    if (rank == 1) {
      barrier(comm);
      die();
    }
    const Error error = expect_loss_of(1, [&] {
      for (barrier(comm);;) op.run(problem.call());
    });
    // A rank that is still in the barrier names the barrier instead.
    EXPECT_TRUE(contains(error.what(), std::string(name(GetParam().op))) ||
                contains(error.what(), "barrier"))
        << error.what();
  });
}

// Before anything of the operator is there: what is waited for is still the operator's.
TEST_P(EveryPlan, NoticesADeathBeforeItsFirstCall) {
  run_in_processes(3, [](Communicator& comm) {
    const OpProblem problem(GetParam().op, kRows, comm, 700);
    if (comm.rank() == 1) {
      barrier(comm);
      die();
    }
    const Error error = expect_loss_of(1, [&] {
      barrier(comm);
      prepare(problem.desc(), comm, {.plan = plan()}).run(problem.call());
    });
    // A rank that is still in the barrier names the barrier instead.
    EXPECT_TRUE(contains(error.what(), std::string(name(GetParam().op))) ||
                contains(error.what(), "barrier"))
        << error.what();
    EXPECT_FALSE(contains(error.what(), "make_mailbox")) << error.what();
  });
}

// In the middle of the operator, amid its product or while it waits.
TEST_P(EveryPlan, NoticesADeathInTheMiddle) {
  run_in_three([](Communicator& comm, Op& op, const OpProblem& problem) {
    const int rank = comm.rank();
    OpCall call = problem.call();
    int polls = 0;
    const PollHook die_soon = [&] {
      if (++polls == 3) die();
    };
    if (rank == 1) op.run(call);
    if (rank == 1) call.poll = die_soon;
    // If it had sent all of its own, the others find out in their next call.
    const Error error = expect_loss_of(1, [&] {
      for (;;) op.run(call);
    });
    for (const std::string& word : {std::string(name(GetParam().op)), std::string("chunk")})
      EXPECT_TRUE(contains(error.what(), word)) << error.what();
  });
}

TEST_P(EveryPlan, EndsAtTheDeadline) {
  std::atomic<bool> has_ended{false};
  run_as_threads(2, [&](Communicator& comm) {
    const OpProblem problem(GetParam().op, kRows, comm);
    Op op = prepare(problem.desc(), comm, {.plan = plan()});
    op.run(problem.call());
    set_timeout(comm, std::chrono::milliseconds(300));
    const bool is_late = comm.rank() == 1;
    if (is_late && !await("rank 0 reaches its deadline", [&] { return has_ended.load(); })) return;
    const Error error = expect_error(Code::timeout, [&] { op.run(problem.call()); });
    has_ended = true;
    EXPECT_EQ(error.culprit(), 1) << error.what();
    EXPECT_TRUE(contains(error.what(), std::string(name(GetParam().op)))) << error.what();
  });
}

TEST_P(EveryPlan, RefusesRanksThatDisagree) {
  run_as_threads(2, [](Communicator& comm) {
    // Both problems are cut alike: only the chunks' tags tell them apart.
    const OpProblem problem(GetParam().op, kRows + comm.rank(), comm);
    const Error error = expect_error(Code::mismatch, [&] {
      prepare(problem.desc(), comm, {.plan = plan()}).run(problem.call());
    });
    EXPECT_TRUE(contains(error.what(), "m: 300 and 301") ||
                contains(error.what(), "m: 301 and 300"))
        << error.what();
  });
}

TEST(Disagreement, AboutTheResultsDtypeIsNoticed) {
  for (int i = static_cast<int>(Operator::matmul_all_reduce); i < kOperators; ++i) {
    const auto op = static_cast<Operator>(i);
    run_as_threads(2, [&](Communicator& comm) {
      const OpProblem problem(op, kRows, comm);
      const Dtype dtype = comm.rank() == 0 ? Dtype::bf16 : Dtype::f32;
      const Matrix out(dtype, problem.out.view.rows, problem.n);
      OpDesc desc = problem.desc();
      desc.out = dtype;
      const Error error = expect_error(Code::mismatch, [&] {
        prepare(desc, comm).run({.x = problem.x.view, .weight = problem.packed, .out = out.view});
      });
      EXPECT_TRUE(contains(error.what(), "the dtype of out: bf16 and f32") ||
                  contains(error.what(), "the dtype of out: f32 and bf16"))
          << error.what();
    });
  }
}

TEST(Disagreement, AboutThePlanIsNoticed) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    const Plan plan = parse_plan(comm.rank() == 0 ? "fused" : "fused poll=100");
    expect_error(Code::mismatch, "the plan",
                 [&] { prepare(problem.desc(), comm, {.plan = plan}).run(problem.call()); });
  });
}

// Before the first chunk already: what they prepare would not fit together.
TEST(Disagreement, OfWhatWouldHaveOtherMailboxesIsSaidInWordsOfTheOperator) {
  struct Case {
    Operator other;
    std::int64_t m;
    const char* plan;
    const char* field;
  };
  for (const Case& one :
       {Case{Operator::matmul_all_reduce, 3000, "fused", "disagree on m: "},
        Case{Operator::matmul_reduce_scatter, kRows, "fused", "disagree on the operator: "},
        Case{Operator::matmul_all_reduce, kRows, "pipelined parts=3", "disagree on the plan"}}) {
    run_as_threads(2, [&](Communicator& comm) {
      const bool first = comm.rank() == 0;
      const Operator op = first ? Operator::matmul_all_reduce : one.other;
      const OpProblem problem(op, first ? kRows : one.m, comm);
      const Plan plan = parse_plan(first ? "fused" : one.plan);
      const Error error = expect_error(Code::mismatch, [&] {
        prepare(problem.desc(), comm, {.plan = plan}).run(problem.call());
      });
      EXPECT_TRUE(contains(error.what(), one.field)) << error.what();
      EXPECT_FALSE(contains(error.what(), "make_mailbox")) << error.what();
    });
  }
}

TEST(Disagreement, AboutTheBiasIsNoticed) {
  for (const auto& [op, plan] : {std::pair{Operator::matmul_all_reduce, "serial"},
                                 {Operator::matmul_all_reduce, "fused"},
                                 {Operator::all_reduce_matmul, "serial"},
                                 {Operator::reduce_scatter_matmul, "pipelined parts=2"}}) {
    run_as_threads(2, [&](Communicator& comm) {
      const OpProblem problem(op, kRows, comm);
      const Matrix bias(Dtype::f32, 1, problem.n);
      OpCall call = problem.call();
      if (comm.rank() == 0) call.bias = bias.view;
      const Error error = expect_error(Code::mismatch, [&] {
        prepare(problem.desc(), comm, {.plan = parse_plan(plan)}).run(call);
      });
      EXPECT_TRUE(contains(error.what(), "the bias: one and none") ||
                  contains(error.what(), "the bias: none and one"))
          << error.what();
    });
  }
}

// Each has a share of k where partial sums travel, and nowhere else.
TEST(Disagreement, AboutTheDepthOfOneWeightIsNoticed) {
  for (const Operator op : {Operator::matmul_all_gather, Operator::all_gather_matmul,
                            Operator::reduce_scatter_matmul, Operator::all_reduce_matmul}) {
    run_as_threads(2, [&](Communicator& comm) {
      const OpProblem problem(op, kRows, comm, 200, comm.rank() == 0 ? 96 : 64);
      const Error error =
          expect_error(Code::mismatch, [&] { prepare(problem.desc(), comm).run(problem.call()); });
      EXPECT_TRUE(contains(error.what(), "k: 96 and 64") || contains(error.what(), "k: 64 and 96"))
          << error.what();
    });
  }
}

// All of them multiply by the same weight.
TEST(Disagreement, AboutTheColumnsOfOneResultIsNoticed) {
  for (const Operator op : {Operator::all_reduce_matmul, Operator::reduce_scatter_matmul}) {
    run_as_threads(2, [&](Communicator& comm) {
      const OpProblem problem(op, kRows, comm, comm.rank() == 0 ? 200 : 136);
      const Error error =
          expect_error(Code::mismatch, [&] { prepare(problem.desc(), comm).run(problem.call()); });
      EXPECT_TRUE(contains(error.what(), "n: 200 and 136") ||
                  contains(error.what(), "n: 136 and 200"))
          << error.what();
    });
  }
}

// A poll hook is the caller's code.
TEST(APollHook, WhatIsThrownFailsTheCallEverywhere) {
  for (const char* plan : {"serial", "fused"}) {
    run_as_threads(2, [&](Communicator& comm) {
      const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
      const auto call = [&](const PollHook& poll) {
        matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm,
                          {.plan = parse_plan(plan), .poll = poll});
      };
      if (comm.rank() == 1) {
        EXPECT_THROW(call([] { throw 1; }), int);
        return;
      }
      expect_error(Code::system, "matmul_all_reduce: rank 1: something was thrown",
                   [&] { call({}); });
    });
  }
}

// An operator that has no mailbox yet makes one, and the others may come late to that.
TEST(APollHook, IsCalledInTheSetUpOfAnOperator) {
  std::atomic<int> called{0};
  run_as_threads(2, [&](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    if (comm.rank() == 1) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (called == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      EXPECT_GT(called, 0);
    }
    const PollHook poll = [&] { ++called; };
    matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, {.poll = poll});
  });
}

// A late rank that is in a product without communication, as the deadline's sentence has it.
TEST(ALateRank, MultipliesAlone) {
  expect_that_a_late_rank_multiplies([](Communicator& comm, const PollHook& hook) {
    const OpProblem problem(Operator::matmul, 2000, comm, 700, 960);
    matmul(problem.x.view, problem.packed, problem.out.view, comm, {.poll = hook});
  });
}

TEST(APollHook, NoOtherOfTheCommunicatorIsCalled) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    const OpProblem other(Operator::matmul_all_reduce, kRows, comm);
    OpOptions options;
    options.poll = [&] { matmul_all_reduce(other.x.view, other.packed, other.out.view, comm); };
    expect_error(
        Code::invalid_argument, "from the poll hook of another operator of this communicator", [&] {
          matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, options);
        });
  });
}

TEST(APollHook, NoPreparedOneIsRunEither) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    // If one rank's call has failed, the other may not have prepared its own yet.
    expect_error(Code::invalid_argument,
                 "from the poll hook of another operator of this communicator", [&] {
                   Op op = prepare(problem.desc(), comm);
                   const PollHook again = [&] { op.run(problem.call()); };
                   OpCall call = problem.call();
                   call.poll = again;
                   op.run(call);
                 });
  });
}

// The parent's chunks are under way: the child has them too, and no business with them.
TEST(APollHook, AForkedChildCallsNone) {
  run_in_processes(2, [](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    const auto call = [&](const OpOptions& options) {
      matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, options);
    };
    const auto refused = [&] {
      expect_error(Code::invalid_argument, "was forked from rank", [&] { call({}); });
    };
    bool has_forked = false;
    OpOptions options;
    options.poll = [&] {
      if (std::exchange(has_forked, true)) return;
      fork_ranks(1, [&](int) { refused(); });
    };
    call(options);
    EXPECT_TRUE(has_forked);
  });
}

TEST(TwoThreads, AreToldSoByOperators) {
  std::atomic<bool> is_in_call{false};
  std::atomic<bool> refused{false};
  run_as_threads(2, [&](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    const auto call = [&](const PollHook& poll) {
      matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, {.poll = poll});
    };
    call({});
    Op op = prepare(problem.desc(), comm);
    if (comm.rank() == 1) {
      if (await("rank 0 refuses its second thread", [&] { return refused.load(); })) call({});
      return;
    }
    const std::jthread other([&] {
      if (!await("rank 0 is in a call", [&] { return is_in_call.load(); })) return;
      const OpProblem own(Operator::matmul_all_reduce, kRows, comm);
      const std::function<void()> calls[] = {
          [&] { matmul_all_reduce(own.x.view, own.packed, own.out.view, comm); },
          [&] { op.run(own.call()); }};
      for (const auto& one : calls) {
        expect_error(Code::invalid_argument, "two threads use this communicator", one);
      }
      refused = true;
    });
    call([&] { is_in_call = true; });
  });
}

}  // namespace
}  // namespace plait
