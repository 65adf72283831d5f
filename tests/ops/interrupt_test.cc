// An exception of a caller's hook comes out of an operator as it was thrown, and the other ranks
// are told: the hook that ends waits, in this communicator or in another, and the poll hook.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/prompt.h"
#include "conformance/await.h"
#include "conformance/ranks.h"
#include "ops/operators.h"
#include "ops/problem.h"
#include "plait/error.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 300;

// No std::exception: what is thrown is the caller's own affair.
struct Stopped {};

struct Scene {
  Operator op;
  const char* plan;
};

void PrintTo(const Scene& scene, std::ostream* out) {  // NOLINT: gtest's name
  *out << name(scene.op) << ' ' << scene.plan;
}

class EveryInterruptedPlan : public testing::TestWithParam<Scene> {
 protected:
  using Rank0 = std::function<void(Communicator& comm, const OpProblem& problem)>;

  // Rank 0 does as it is told, while rank 1, which has made the operator's first call with it, is
  // in no other. Returns what rank 1 then gets of its next call.
  static Error run(const CommunicatorOptions& options, const Rank0& rank_0) {
    const ThreadGroup group(2);
    std::atomic<bool> is_through{false};
    std::atomic<bool> has_ended{false};
    Error told(Code::invalid_argument, "nothing");
    std::jthread other([&] {
      Communicator comm = group.join(1);
      const OpProblem problem(GetParam().op, kRows, comm);
      call(problem, comm);
      is_through = true;
      if (!await("rank 0 ends", [&] { return has_ended.load(); })) return;
      told = expect_error(Code::peer_lost, [&] { barrier(comm); });
      EXPECT_EQ(told.culprit(), 0) << told.what();
    });
    Communicator comm = group.join(0, options);
    const OpProblem problem(GetParam().op, kRows, comm);
    call(problem, comm);
    if (await("rank 1 is through", [&] { return is_through.load(); })) rank_0(comm, problem);
    has_ended = true;
    other.join();
    return told;
  }

  static void call(const OpProblem& problem, Communicator& comm, const PollHook& poll = {}) {
    Op op = prepare(problem.desc(), comm, {.plan = parse_plan(GetParam().plan)});
    OpCall call = problem.call();
    call.poll = poll;
    op.run(call);
  }

  // Expects that a call for which the other rank does not come ends by what is thrown.
  void expect_stopped(const std::function<void()>& call) {
    const auto begin = Clock::now();
    EXPECT_THROW(call(), Stopped);
    prompt_.took(Clock::now() - begin);
  }

  Prompt prompt_;
};

std::vector<Scene> scenes() {
  std::vector<Scene> scenes;
  for (const Operator op : communicating_operators()) {
    for (const char* plan : {"serial", "pipelined parts=2", "fused"})
      if (has_schedule(op, parse_plan(plan).schedule)) scenes.push_back({op, plan});
  }
  return scenes;
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryInterruptedPlan, testing::ValuesIn(scenes()),
                         [](const auto& one) {
                           std::string text =
                               std::string(name(one.param.op)) + '_' + one.param.plan;
                           return text.substr(0, text.find(' '));
                         });

TEST_P(EveryInterruptedPlan, EndsInItsOwnWait) {
  prompt_.expect([&] {
    std::atomic<bool> is_asked{false};
    const auto hook = [&] {
      if (is_asked) throw Stopped{};
    };
    const Error told =
        run({.interrupted = hook}, [&](Communicator& comm, const OpProblem& problem) {
          is_asked = true;
          expect_stopped([&] { call(problem, comm); });
        });
    EXPECT_TRUE(contains(told.what(), "rank 0 was interrupted")) << told.what();
  });
}

// The poll hook asks for a collective of another communicator, whose hook throws; this one has
// none.
TEST_P(EveryInterruptedPlan, EndsInAnothersPending) {
  prompt_.expect([&] {
    std::atomic<bool> is_asked{false};
    std::atomic<bool> has_ended{false};
    const auto hook = [&] {
      if (is_asked) throw Stopped{};
    };
    const ThreadGroup others(2);
    const std::jthread peer([&] {
      Communicator other = others.join(1);
      if (!await("rank 0 ends", [&] { return has_ended.load(); })) return;
      expect_error(Code::peer_lost, "rank 0 was interrupted", [&] { barrier(other); });
    });
    const Error told = run({}, [&](Communicator& comm, const OpProblem& problem) {
      Communicator other = others.join(0, {.interrupted = hook});
      is_asked = true;
      expect_stopped([&] {
        Pending pending = start_barrier(other);
        call(problem, comm, [&] { pending.progress(); });
      });
      has_ended = true;
    });
    EXPECT_TRUE(contains(told.what(), "rank 0 was interrupted")) << told.what();
  });
}

TEST_P(EveryInterruptedPlan, EndsByItsPollHook) {
  prompt_.expect([&] {
    const ThreadGroup group(2);
    std::atomic<bool> is_through{false};
    std::atomic<bool> has_ended{false};
    const std::jthread other([&] {
      Communicator comm = group.join(1);
      const OpProblem problem(GetParam().op, kRows, comm);
      call(problem, comm);
      is_through = true;
      if (!await("rank 0 ends", [&] { return has_ended.load(); })) return;
      expect_error(Code::system, 0,
                   std::string(name(GetParam().op)) + ": rank 0: ", [&] { barrier(comm); });
    });
    Communicator comm = group.join(0);
    const OpProblem problem(GetParam().op, kRows, comm);
    call(problem, comm);
    if (!await("rank 1 is through", [&] { return is_through.load(); })) return;
    expect_stopped([&] { call(problem, comm, [] { throw Stopped{}; }); });
    has_ended = true;
  });
}

// A caller's own kind of Error is not cut down to what plait knows of it.
TEST(APollHook, ErrorsKeepTheirKind) {
  struct Own : Error {
    Own() : Error(Code::timeout, "the caller's own words") {}
  };
  run_as_threads(2, [&](Communicator& comm) {
    const OpProblem problem(Operator::matmul_all_reduce, kRows, comm);
    const auto call = [&](const PollHook& poll) {
      matmul_all_reduce(problem.x.view, problem.packed, problem.out.view, comm, {.poll = poll});
    };
    if (comm.rank() == 0) {
      EXPECT_THROW(call([] { throw Own(); }), Own);
    } else {
      const Error error = expect_error(Code::timeout, [&] { call({}); });
      EXPECT_STREQ(error.what(), "the caller's own words");
    }
  });
}

}  // namespace
}  // namespace plait
