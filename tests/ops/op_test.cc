// Calls of other numbers of rows than an operator was prepared for, or than the call before had:
// the same bits, and no mailbox made.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "conformance/ranks.h"
#include "ops/blocking.h"
#include "ops/op_cache.h"
#include "ops/operators.h"
#include "ops/problem.h"
#include "plait/error.h"
#include "plait/quantized.h"
#include "tensor/compare.h"

namespace plait {
namespace {

// 300 rows are too many for sums to be sent to all ranks, or copied; 3 rows are not.
constexpr std::int64_t kMost = 300;
constexpr std::int64_t kColumns = 500;
constexpr std::int64_t kDepth = 96;

// Instrumented ranks are slow, and what depends on the world shows without them. The rows that they
// take are all, none, one for each, and all but one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::array<std::int64_t, 4> kRows = {300, 0, 3, 299};
constexpr std::array kWorlds = {3};
#else
constexpr std::array<std::int64_t, 9> kRows = {300, 0, 1, 2, 3, 37, 120, 255, 299};
constexpr std::array kWorlds = {1, 2, 3, 4};
#endif

class CallsOfFewerRows : public testing::TestWithParam<Operator> {
 protected:
  static std::vector<Plan> plans() {
    std::vector<Plan> plans;
    for (const char* text : {"serial", "pipelined parts=5", "pipelined parts=3 axis=rows", "fused",
                             "fused chunk=96"}) {
      const Plan plan = followed_by(GetParam(), parse_plan(text));
      if (has_schedule(GetParam(), parse_plan(text).schedule)) plans.push_back(plan);
    }
    return plans;
  }
};

INSTANTIATE_TEST_SUITE_P(Ops, CallsOfFewerRows, testing::ValuesIn(every_operator()), operator_name);

// The operands of a call with a weight that many calls share.
struct Rows {
  Rows(Operator op, std::int64_t m, Dtype x_dtype, Dtype out_dtype, const Communicator& comm)
      : x(x_dtype, ops::count(ops::shapes_of(op).x, m, comm.rank(), comm.world()), kDepth,
          static_cast<std::uint64_t>(comm.rank()) + 1),
        out(out_dtype, ops::count(ops::shapes_of(op).out, m, comm.rank(), comm.world()), kColumns) {
    if (out.view.bytes() > 0) std::memset(out.view.data, 0x5A, out.view.bytes());
  }

  Matrix x;
  Matrix out;
};

struct Kinds {
  Dtype x = Dtype::bf16;
  Dtype wire = Dtype::f32;
  const char* scheme = "";
};

// An operator that was prepared for kMost rows, blocking calls that follow one another, and an
// operator that was prepared for these rows alone.
void have_the_same_bits(Operator op, const Plan& plan, const Kinds& kinds, Communicator& comm) {
  const Matrix w(kinds.x, kColumns, kDepth, static_cast<std::uint64_t>(comm.rank()) + 50);
  const WeightView plain = {.view = w.view, .layout = WeightLayout::out_in};
  const auto scheme = parse_quant_scheme(kinds.scheme);
  const PackedWeight packed = scheme ? PackedWeight(quantize(plain, *scheme)) : PackedWeight(plain);
  const Matrix bias(Dtype::f32, 1, kColumns, 7);
  OpDesc desc = {.op = op,
                 .m = kMost,
                 .n = kColumns,
                 .k = kDepth,
                 .x = kinds.x,
                 .weight = Weight(packed).kind(),
                 .out = kinds.x};
  OpOptions options = {.wire = kinds.wire, .plan = plan, .threads = 1};
  Op large = prepare(desc, comm, options);
  options.bias = bias.view;
  for (const std::int64_t m : kRows) {
    const Rows few(op, m, kinds.x, kinds.x, comm);
    const std::size_t mailboxes = comm.mailbox_bytes();
    large.run({.x = few.x.view, .weight = packed, .out = few.out.view, .bias = bias.view});
    const Rows called(op, m, kinds.x, kinds.x, comm);
    ops::blocking(op)(called.x.view, packed, called.out.view, comm, options);
    EXPECT_EQ(comm.mailbox_bytes(), mailboxes) << m << " rows, " << name(plan);

    desc.m = m;
    const Rows exact(op, m, kinds.x, kinds.x, comm);
    prepare(desc, comm, {.wire = kinds.wire, .plan = plan, .threads = 1})
        .run({.x = exact.x.view, .weight = packed, .out = exact.out.view, .bias = bias.view});
    EXPECT_TRUE(tensor::same_bits(few.out.view, exact.out.view)) << m << " rows, " << name(plan);
    EXPECT_TRUE(tensor::same_bits(called.out.view, exact.out.view)) << m << " rows, " << name(plan);
  }
}

TEST_P(CallsOfFewerRows, HaveTheBitsOfWhatWasPreparedForThemAlone) {
  for (const int world : kWorlds) {
    run_as_threads(world, [&](Communicator& comm) {
      for (const Plan& plan : plans()) {
        have_the_same_bits(GetParam(), plan, {}, comm);
        // Dtypes do not change which rows are whose, so one world shows them.
        if (comm.world() != 3) continue;
        have_the_same_bits(GetParam(), plan, {.x = Dtype::f32}, comm);
        have_the_same_bits(GetParam(), plan, {.wire = Dtype::bf16}, comm);
        have_the_same_bits(GetParam(), plan, {.scheme = "s8:group=32"}, comm);
      }
    });
  }
}

TEST_P(CallsOfFewerRows, HaveTheSameBitsInProcessesAndOverALink) {
  const auto all = [](Communicator& comm) {
    for (const Plan& plan : plans()) have_the_same_bits(GetParam(), plan, {}, comm);
  };
  run_in_processes(2, all);
  run_as_threads(2, all, {.link = parse_link("10gbit,5us")});
}

// A call of the first `m` rows of a problem.
void run_first_rows(std::int64_t m, const OpProblem& problem, Communicator& comm,
                    ops::OpCache& cache, const Plan& plan) {
  const auto rows = [&](ops::Rows which) {
    return ops::count(which, m, comm.rank(), comm.world());
  };
  const ops::Shapes shapes = ops::shapes_of(problem.op);
  OpDesc desc = problem.desc();
  desc.m = m;
  OpCall call = problem.call();
  call.x = call.x.row_range(0, rows(shapes.x));
  call.out = call.out.row_range(0, rows(shapes.out));
  cache.run(desc, comm, {.plan = plan, .threads = 1}, call);
}

// 100 calls, of which no two have as many rows as each other: what the first has made serves all.
TEST_P(CallsOfFewerRows, NegotiateNothingWhenTokensChange) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(GetParam(), 510, comm, 700, 99);
    for (const char* text : {"serial", "pipelined parts=3", "fused"}) {
      const Plan plan = parse_plan(text);
      if (!has_schedule(GetParam(), plan.schedule)) continue;
      ops::OpCache cache;
      std::size_t mailboxes = 0;
      std::size_t bytes = 0;
      for (std::int64_t i = 0; i < (kIsSanitized ? 12 : 100); ++i) {
        // 509 is prime: the numbers are mixed, after the largest.
        const std::int64_t m = i == 0 ? problem.m : i * 71 % 509;
        run_first_rows(m, problem, comm, cache, plan);
        if (i == 0) mailboxes = comm.mailbox_bytes();
        if (i == 0) bytes = cache.bytes();
      }
      EXPECT_EQ(comm.mailbox_bytes(), mailboxes) << text;
      EXPECT_EQ(cache.size(), 1U) << text;
      // A gather takes rows in the batches in which they come.
      EXPECT_LE(cache.bytes(), bytes + bytes / 2) << text;
    }
  });
}

// Numbers of rows that creep up make mailboxes for each power of two, and memory a few times.
TEST_P(CallsOfFewerRows, HoldLittleMoreThanTheMostRowsTakeWhenTheyCreepUp) {
  run_as_threads(2, [](Communicator& comm) {
    // A mailbox of its own would hide what is measured.
    std::optional<Communicator> creeping = comm.split(0, comm.rank());
    std::optional<Communicator> at_once = comm.split(0, comm.rank());
    const OpProblem problem(GetParam(), 200, comm, 700, 99);
    const Plan plan = default_plan(GetParam());
    ops::OpCache many;
    constexpr std::int64_t kStep = kIsSanitized ? 8 : 1;
    for (std::int64_t m = kStep; m <= problem.m; m += kStep)
      run_first_rows(m, problem, *creeping, many, plan);
    ops::OpCache one;
    const std::size_t none = at_once->mailbox_bytes();
    run_first_rows(problem.m, problem, *at_once, one, plan);
    EXPECT_LE(creeping->mailbox_bytes() - none, 2 * (at_once->mailbox_bytes() - none) + 2 * none);
    EXPECT_LE(many.bytes(), 2 * one.bytes());
  });
}

// Ranks whose shares differ keep differently much, and don't throw out what they keep at the same
// calls: which mailbox a call goes through must not depend on that.
TEST_P(CallsOfFewerRows, GoOnWhereOneRankAloneHasForgottenWhatItHadPrepared) {
  run_as_threads(3, [](Communicator& comm) {
    ops::OpCache cache(comm.rank() == 1 ? ops::OpCache::Limits{.entries = 1}
                                        : ops::OpCache::Limits{});
    for (const std::int64_t m : {40, 300, 3, 500, 41, 299, 1, 700}) {
      for (const std::int64_t n : {300, 700}) {
        const OpProblem problem(GetParam(), m, comm, n);
        const OpOptions options = {.plan = default_plan(GetParam()), .threads = 1};
        cache.run(problem.desc(), comm, options, problem.call());
        const OpProblem same(GetParam(), m, comm, n);
        prepare(same.desc(), comm, {.threads = 1}).run(same.call());
        EXPECT_TRUE(tensor::same_bits(problem.out.view, same.out.view)) << m;
      }
    }
  });
}

TEST(FewerRows, AreAtLeastNoneAndAtMostWhatWasPreparedFor) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem problem(Operator::all_gather_matmul, 8, comm);
    const OpProblem more(Operator::all_gather_matmul, 9, comm);
    Op op = prepare(problem.desc(), comm);
    const auto refusal = [&](const OpCall& call) {
      return std::string(expect_error(Code::invalid_argument, [&] { op.run(call); }).what());
    };
    EXPECT_EQ(refusal(more.call()),
              "all_gather_matmul: m=9 is not between 0 and 8, the most that it was "
              "prepared for");
    OpCall call = problem.call();
    call.out.rows = -1;
    EXPECT_EQ(refusal(call),
              "all_gather_matmul: m=-1 is not between 0 and 8, the most that it was "
              "prepared for");
    op.run(problem.call());
  });
}

// Each is allowed, and they disagree all the same.
TEST(FewerRows, AreTheSameOnAllRanks) {
  run_as_threads(2, [](Communicator& comm) {
    const OpProblem most(Operator::matmul_all_reduce, 100, comm);
    Op op = prepare(most.desc(), comm);
    op.run(most.call());
    const OpProblem few(Operator::matmul_all_reduce, 70 + comm.rank(), comm);
    expect_error(Code::mismatch, "disagree on m: 7", [&] { op.run(few.call()); });
  });
}

// The source answers for 100, 50, 25 and so on rows, and a call follows the answer for the fewest
// rows that are not fewer than its own. Rank 1 is given that plan, and the two must agree.
TEST(FewerRows, FollowThePlanOfAsFewRows) {
  class Halves final : public PlanSource {
   public:
    std::optional<Plan> find(const PlanKey& key) const override {
      return Plan{.schedule = Schedule::pipelined, .parts = static_cast<int>(key.m % 64)};
    }
  };
  run_as_threads(2, [](Communicator& comm) {
    const Halves plans;
    const OpProblem most(Operator::matmul_all_reduce, 100, comm);
    Op op = prepare(most.desc(), comm, {.plans = &plans});
    EXPECT_EQ(op.plan().parts, 100 % 64);
    for (const auto& [m, asked] :
         {std::pair{100, 100}, {51, 100}, {50, 50}, {26, 50}, {25, 25}, {2, 3}, {1, 1}, {0, 1}}) {
      const OpProblem few(Operator::matmul_all_reduce, m, comm);
      if (comm.rank() == 0) {
        op.run(few.call());
      } else {
        const Plan plan = {.schedule = Schedule::pipelined, .parts = asked % 64};
        matmul_all_reduce(few.x.view, few.packed, few.out.view, comm, {.plan = plan});
      }
    }
  });
}

}  // namespace
}  // namespace plait
