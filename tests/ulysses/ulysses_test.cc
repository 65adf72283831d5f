// Promises of plait/ulysses.h: the bits of one rank, in every world, plan and transport.
#include "plait/ulysses.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "conformance/one_plan.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "ops/shapes.h"
#include "tensor/compare.h"

namespace plait {
namespace {

void poison(const TensorView& view) {
  for (std::int64_t row = 0; row < view.rows; ++row)
    std::memset(view.row(row), 0x5A, view.row_bytes());
}

// The columns of a group side by side.
Matrix columns_of(const ConstTensorView& whole, const std::vector<ColumnRange>& group) {
  std::int64_t count = 0;
  for (const ColumnRange& range : group) count += range.count;
  Matrix part(whole.dtype, whole.rows, count);
  std::int64_t at = 0;
  for (const ColumnRange& range : group) {
    const TensorView to = part.view.column_range(at, at + range.count);
    for (std::int64_t row = 0; row < whole.rows && range.count > 0; ++row)
      std::memcpy(to.row(row), whole.column_range(range.first, range.first + range.count).row(row),
                  to.row_bytes());
    at += range.count;
  }
  return part;
}

struct Types {
  Dtype x = Dtype::bf16;
  Dtype weight = Dtype::bf16;
  Dtype out = Dtype::bf16;
};

// A product that all ranks know whole: each computes what one rank alone would have.
class Problem {
 public:
  Problem(std::int64_t m, std::int64_t n, std::int64_t k, const Types& types = {},
          bool biased = false)
      : x(types.x, m, k, 1),
        w(types.weight, n, k, 2),
        bias(types.out, 1, n, 3),
        y(types.out, m, n, 4),
        is_biased(biased) {
    Gemm gemm = select_gemm(
        {.m = m, .n = n, .k = k, .x = types.x, .weight = types.weight, .out = types.out});
    gemm.run({.x = {x.view}, .weight = plain(), .out = y.view, .bias = given_bias()});
  }

  WeightView plain() const { return {.view = w.view, .layout = WeightLayout::out_in}; }
  ConstTensorView given_bias() const { return is_biased ? bias.view : ConstTensorView{}; }

  // Runs both operators, and compares what this rank gets with its part of the whole.
  void expect_bits_of_one_rank(Communicator& comm, const Weight& weight, const ColumnGroups& n,
                               const ColumnGroups& k, const UlyssesOptions& asked) const {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Range own = ops::shard_of(x.view.rows, comm.rank(), comm.world());
    const std::string what =
        (asked.plan ? name(*asked.plan) : "") + " on rank " + std::to_string(rank);
    UlyssesOptions options = asked;
    options.bias = given_bias();
    {
      const Matrix wanted = columns_of(y.view, n[rank]);
      const Matrix out(y.view.dtype, y.view.rows, wanted.view.cols);
      poison(out.view);
      matmul_all_to_all(x.view.row_range(own.begin, own.end), weight, n, out.view, comm, options);
      EXPECT_TRUE(tensor::same_bits(out.view, wanted.view)) << "matmul_all_to_all " << what;
    }
    const Matrix mine = columns_of(x.view, k[rank]);
    const Matrix out(y.view.dtype, plan::length(own), y.view.cols);
    const Matrix gathered(x.view.dtype, plan::length(own), x.view.cols);
    for (const bool gathers : {false, true}) {
      if (gathers) options.gathered = gathered.view;
      poison(out.view);
      poison(gathered.view);
      all_to_all_matmul(mine.view, weight, k, out.view, comm, options);
      EXPECT_TRUE(tensor::same_bits(out.view, y.view.row_range(own.begin, own.end)))
          << "all_to_all_matmul " << what;
    }
    EXPECT_TRUE(tensor::same_bits(gathered.view, x.view.row_range(own.begin, own.end))) << what;
  }

  Matrix x, w, bias, y;
  bool is_biased;
};

// The axis of a plan that is not pipelined means nothing, but a struct may hold one.
std::vector<Plan> all_plans() {
  return {parse_plan("serial"),
          parse_plan("pipelined parts=3"),
          parse_plan("pipelined parts=2 axis=rows first=10"),
          parse_plan("fused"),
          parse_plan("fused chunk=24 poll=0"),
          {.schedule = Schedule::fused, .axis = Axis::rows, .chunk = 24}};
}

// Unequal shares, in pieces of 16 and 40 columns that take turns.
ColumnGroups in_pieces(std::int64_t columns, int world) {
  ColumnGroups groups(static_cast<std::size_t>(world));
  for (std::int64_t first = 0, turn = 0; first < columns; ++turn) {
    const std::int64_t count = std::min<std::int64_t>(turn % 3 == 1 ? 40 : 16, columns - first);
    // Some of them lie in another order than in the whole.
    std::vector<ColumnRange>& group = groups[static_cast<std::size_t>(turn) % groups.size()];
    group.insert(turn % 4 == 3 ? group.begin() : group.end(), {first, count});
    first += count;
  }
  return groups;
}

// All columns are the last rank's.
ColumnGroups for_last(std::int64_t columns, int world) {
  ColumnGroups groups(static_cast<std::size_t>(world));
  groups.back() = {{0, columns}};
  return groups;
}

using Ranks = RanksTest;

const RankMaker kThreads = {.name = "threads", .run = run_as_threads};
const RankMaker kShm = {.name = "shm", .run = run_in_processes};
const RankMaker kTcp = {.name = "tcp", .run = run_over_tcp};
const RankMaker kLinked = {.name = "linked", .run = run_as_threads, .link = "1gbit,50us"};
INSTANTIATE_TEST_SUITE_P(Threads, Ranks, worlds_of(kThreads, {1, 2, 3, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Linked, Ranks, worlds_of(kLinked, {2}), case_name);
#ifndef __SANITIZE_THREAD__
INSTANTIATE_TEST_SUITE_P(Shm, Ranks, worlds_of(kShm, {2, 3}), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, Ranks, worlds_of(kTcp, {3}), case_name);
#endif

TEST_P(Ranks, HaveTheBitsOfOneInEveryPlan) {
  run([](Communicator& comm) {
    const Problem problem(701, 392, 200, {}, true);
    const int world = comm.world();
    const PackedWeight packed(problem.plain(), 1);
    for (const Plan& plan : all_plans()) {
      const UlyssesOptions options = {.plan = plan};
      problem.expect_bits_of_one_rank(comm, problem.plain(), equal_columns(392, world),
                                      equal_columns(200, world), options);
      problem.expect_bits_of_one_rank(comm, packed, in_pieces(392, world), in_pieces(200, world),
                                      options);
    }
  });
}

// Fewer rows than ranks, none, and ranks without columns.
TEST_P(Ranks, MayHaveNothing) {
  run([](Communicator& comm) {
    const int world = comm.world();
    for (const std::int64_t m : {0, 1, 2, 37}) {
      const Problem problem(m, 70, 96);
      for (const Plan& plan : all_plans())
        problem.expect_bits_of_one_rank(comm, problem.plain(), for_last(70, world),
                                        for_last(96, world), {.plan = plan});
    }
    const Problem empty(5, 0, 0);
    empty.expect_bits_of_one_rank(comm, empty.plain(), equal_columns(0, world),
                                  equal_columns(0, world), {});
  });
}

TEST(Ulysses, HasTheBitsOfOneRankInEveryDtype) {
  run_as_threads(3, [](Communicator& comm) {
    const Dtype floats[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
    for (const Dtype x : floats) {
      for (const Dtype out : floats) {
        const Problem problem(400, 200, 130, {.x = x, .weight = x, .out = out}, true);
        for (const char* plan : {"serial", "fused"})
          problem.expect_bits_of_one_rank(comm, problem.plain(), in_pieces(200, 3),
                                          in_pieces(130, 3), {.plan = parse_plan(plan)});
      }
    }
  });
}

// Sums over a long k are trees, whose leaves the ranks' shares cut.
TEST(Ulysses, AddsUpALongKAsOneRankDoes) {
  run_as_threads(3, [](Communicator& comm) {
    const Problem problem(130, 64, 2080);
    problem.expect_bits_of_one_rank(comm, problem.plain(), equal_columns(64, 3),
                                    equal_columns(2080, 3), {});
  });
}

// Back to back without a barrier: ranks run ahead of one another.
TEST(Ulysses, RunsBackToBackInChangingSizesAndPlans) {
  run_in_processes(3, [](Communicator& comm) {
    const Problem small(64, 130, 96);
    const Problem large(500, 392, 200);
    for (int turn = 0; turn < 12; ++turn) {
      const Problem& problem = turn % 3 == 0 ? small : large;
      const std::int64_t n = problem.y.view.cols;
      const std::int64_t k = problem.x.view.cols;
      problem.expect_bits_of_one_rank(comm, problem.plain(), equal_columns(n, 3), in_pieces(k, 3),
                                      {.plan = all_plans()[static_cast<std::size_t>(turn % 6)]});
    }
  });
}

// With many slots' worth of chunks for each peer, so that ranks wait for room.
TEST(Ulysses, WaitsForRoomWhereAPeerIsSlow) {
  const CommunicatorOptions slow = {.link = parse_link("0.3gbit,1us")};
  run_as_threads(
      2,
      [](Communicator& comm) {
        const Problem problem(800, 400, 64);
        problem.expect_bits_of_one_rank(comm, problem.plain(), equal_columns(400, 2),
                                        equal_columns(64, 2),
                                        {.plan = parse_plan("fused chunk=8")});
      },
      slow);
}

// The gradient of each operator is the other, by the weight turned.
TEST(Ulysses, IsItsOwnGradient) {
  run_as_threads(2, [](Communicator& comm) {
    const Heads heads = {.heads = 6, .kv_heads = 3, .size = 16};
    const ColumnGroups columns = qkv_columns(heads, 2);
    const Problem problem(90, 192, 64);  // as a gradient [rows, q | k | v] by w [outputs, inputs]
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Range own = ops::shard_of(90, comm.rank(), 2);
    const Matrix grad = columns_of(problem.y.view, columns[rank]);
    const Matrix grad_x(Dtype::bf16, plan::length(own), 64);
    const Matrix all(Dtype::bf16, plan::length(own), 192);
    const WeightView turned = {.view = problem.w.view, .layout = WeightLayout::in_out};
    all_to_all_matmul(grad.view, turned, columns, grad_x.view, comm, {.gathered = all.view});
    const Matrix wanted(Dtype::bf16, 90, 64);
    Gemm gemm = select_gemm({.m = 90, .n = 64, .k = 192});
    gemm.run({.x = {problem.y.view}, .weight = turned, .out = wanted.view});
    EXPECT_TRUE(tensor::same_bits(grad_x.view, wanted.view.row_range(own.begin, own.end)));
    EXPECT_TRUE(tensor::same_bits(all.view, problem.y.view.row_range(own.begin, own.end)));
  });
}

// Copies of what ranks share, and the sum of what they bring, in the order of ranks.
TEST_P(Ranks, ShareColumns) {
  run([](Communicator& comm) {
    const int world = comm.world();
    const std::int64_t rows = 301;
    const ColumnGroups columns =
        qkv_columns({.heads = std::int64_t{3} * world, .kv_heads = 1, .size = 16}, world);
    const std::int64_t all = 16 * (std::int64_t{3} * world + 2);
    const Problem problem(rows, all, 48);
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Range own = ops::shard_of(rows, comm.rank(), world);
    // Each rank brings all rows, and columns of k and v that differ from rank to rank.
    std::vector<Matrix> brought;
    brought.reserve(static_cast<std::size_t>(world));
    const Matrix sum(Dtype::bf16, rows, all);
    for (int one = 0; one < world; ++one)
      brought.emplace_back(Dtype::bf16, rows, all, static_cast<std::uint64_t>(10 + one));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<float> total(static_cast<std::size_t>(all));
      std::vector<float> part(total.size());
      for (int one = 0; one < world; ++one) {
        convert(brought[static_cast<std::size_t>(one)].view.row(row), Dtype::bf16, part.data(),
                Dtype::f32, part.size());
        for (const ColumnRange& range : columns[static_cast<std::size_t>(one)]) {
          for (auto i = static_cast<std::size_t>(range.first);
               i < static_cast<std::size_t>(range.first + range.count); ++i)
            total[i] += part[i];
        }
      }
      convert(total.data(), Dtype::f32, sum.view.row(row), Dtype::bf16, total.size());
    }
    const WeightView turned = {.view = problem.w.view, .layout = WeightLayout::in_out};
    const Matrix wanted(Dtype::bf16, rows, 48);
    Gemm gemm = select_gemm({.m = rows, .n = 48, .k = all});
    gemm.run({.x = {sum.view}, .weight = turned, .out = wanted.view});
    const Matrix mine = columns_of(brought[rank].view, columns[rank]);
    for (const Plan& plan : all_plans()) {
      const Matrix copies = columns_of(problem.y.view, columns[rank]);
      const Matrix out(Dtype::bf16, rows, copies.view.cols);
      poison(out.view);
      matmul_all_to_all(problem.x.view.row_range(own.begin, own.end), problem.plain(), columns,
                        out.view, comm, {.plan = plan});
      EXPECT_TRUE(tensor::same_bits(out.view, copies.view)) << name(plan);
      if (plan.schedule == Schedule::pipelined && plan.axis == Axis::columns) continue;
      const Matrix grad_x(Dtype::bf16, plan::length(own), 48);
      const Matrix gathered(Dtype::bf16, plan::length(own), all);
      for (const bool gathers : {false, true}) {
        poison(grad_x.view);
        all_to_all_matmul(mine.view, turned, columns, grad_x.view, comm,
                          {.plan = plan, .gathered = gathers ? gathered.view : TensorView{}});
        EXPECT_TRUE(tensor::same_bits(grad_x.view, wanted.view.row_range(own.begin, own.end)))
            << name(plan);
      }
      EXPECT_TRUE(tensor::same_bits(gathered.view, sum.view.row_range(own.begin, own.end)));
    }
  });
}

TEST(Ulysses, AsksForAPlan) {
  const Problem problem(40, 96, 64);
  run_in_threads(2, [&](Communicator& comm) {
    const ColumnGroups of_n = {{{.first = 0, .count = 32}}, {{.first = 32, .count = 64}}};
    const OnePlan parts("pipelined parts=2");
    problem.expect_bits_of_one_rank(comm, problem.plain(), of_n, equal_columns(64, 2),
                                    {.plans = &parts, .threads = 1});
    EXPECT_EQ(parts.asked,
              "op=all_to_all_matmul m=40 n=96 k=64 x=bf16 w=bf16:plain out=bf16 wire=bf16 ranks=2 "
              "threads=1 transport=threads columns=32");
    EXPECT_EQ(parts.followed, "pipelined parts=2");
    const OnePlan other(comm.rank() == 0 ? "serial" : "fused");
    const Matrix out(Dtype::bf16, 40, comm.rank() == 0 ? 32 : 64);
    const Range own = ops::shard_of(40, comm.rank(), 2);
    expect_error(Code::mismatch, [&] {
      matmul_all_to_all(problem.x.view.row_range(own.begin, own.end), problem.plain(), of_n,
                        out.view, comm, {.plans = &other});
    });
    EXPECT_TRUE(other.asked.starts_with("op=matmul_all_to_all ")) << other.asked;
    EXPECT_TRUE(other.asked.ends_with(" columns=64")) << other.asked;
    EXPECT_EQ(other.followed, "") << "the call has failed";
  });
}

TEST(Ulysses, CallsThePollHook) {
  run_as_threads(2, [](Communicator& comm) {
    const Problem problem(300, 200, 64);
    int polls = 0;
    problem.expect_bits_of_one_rank(comm, problem.plain(), equal_columns(200, 2),
                                    equal_columns(64, 2),
                                    {.plan = parse_plan("fused poll=0"), .poll = [&] { ++polls; }});
    EXPECT_GT(polls, 2);
  });
}

std::string refusal(Communicator& comm, const ColumnGroups& columns, std::int64_t rows,
                    const UlyssesOptions& options = {}) {
  const Matrix x(Dtype::bf16, rows, 32);
  const Matrix w(Dtype::bf16, 48, 32);
  const Matrix out(Dtype::bf16, 9, 24);
  return expect_error(Code::invalid_argument,
                      [&] {
                        matmul_all_to_all(
                            x.view, WeightView{.view = w.view, .layout = WeightLayout::out_in},
                            columns, out.view, comm, options);
                      })
      .what();
}

TEST(Ulysses, RefusesWhatDoesNotFit) {
  run_as_threads(2, [](Communicator& comm) {
    const std::int64_t own = comm.rank() == 0 ? 5 : 4;
    EXPECT_EQ(refusal(comm, {{{0, 48}}}, own),
              "matmul_all_to_all: there are 1 groups of columns for 2 ranks");
    EXPECT_EQ(refusal(comm, equal_columns(47, 2), own),
              "matmul_all_to_all: column 47 is in no group");
    EXPECT_EQ(refusal(comm, equal_columns(48, 2), 6),
              "matmul_all_to_all: x is 6 x 32, not " + std::to_string(own) +
                  " x 32: of 9 rows this rank has " + std::to_string(own));
    const Matrix bias(Dtype::bf16, 1, 24);
    EXPECT_EQ(refusal(comm, equal_columns(48, 2), own, {.bias = bias.view}),
              "matmul_all_to_all: bias is 1 x 24, not 1 x 48");
    const Matrix gathered(Dtype::bf16, own, 32);
    EXPECT_EQ(refusal(comm, equal_columns(48, 2), own, {.gathered = gathered.view}),
              "matmul_all_to_all: gathers no x; all_to_all_matmul does");
    const Matrix x(Dtype::bf16, 9, 16);
    const Matrix w(Dtype::bf16, 48, 32);
    const Matrix out(Dtype::bf16, own, 48);
    const Error error = expect_error(Code::invalid_argument, [&] {
      all_to_all_matmul(x.view, WeightView{.view = w.view, .layout = WeightLayout::out_in},
                        equal_columns(32, 2), out.view, comm,
                        {.plan = parse_plan("pipelined axis=columns")});
    });
    EXPECT_EQ(std::string(error.what()),
              "all_to_all_matmul: axis=columns would cut the k of a product; its rows are cut");
  });
}

TEST(Ulysses, FindsRanksThatDisagree) {
  run_as_threads(2, [](Communicator& comm) {
    const Problem problem(9, 48, 32);
    const Range own = ops::shard_of(9, comm.rank(), 2);
    const ColumnGroups columns =
        comm.rank() == 0 ? equal_columns(48, 2) : ColumnGroups{{{24, 24}}, {{0, 24}}};
    const Matrix out(Dtype::bf16, 9, 24);
    const Error error = expect_error(Code::mismatch, [&] {
      matmul_all_to_all(problem.x.view.row_range(own.begin, own.end), problem.plain(), columns,
                        out.view, comm);
    });
    EXPECT_TRUE(contains(error.what(), "matmul_all_to_all: ")) << error.what();
    EXPECT_TRUE(contains(error.what(), "the plan or the groups of columns")) << error.what();
  });
}

}  // namespace
}  // namespace plait
