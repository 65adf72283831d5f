// Each row of the table of operators (plait/operator.h) says what its operator does.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "comm/core/operation.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "ops/operators.h"
#include "ops/shapes.h"
#include "plait/error.h"
#include "plait/ops.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 5;  // of all ranks: three of rank 0, two of rank 1

class EveryRow : public testing::TestWithParam<Operator> {
 protected:
  static Operator op() { return GetParam(); }
  static const OperatorTraits& traits() { return traits_of(op()); }
};

INSTANTIATE_TEST_SUITE_P(Traits, EveryRow, testing::ValuesIn(every_operator()), operator_name);

void fill(const TensorView& view, float value) {
  for (std::int64_t row = 0; row < view.rows; ++row)
    std::fill_n(static_cast<float*>(view.row(row)), view.cols, value);
}

// X of rank r is r + 1 everywhere, and its weight 1.
struct Ones {
  Ones(Operator op, std::int64_t columns, std::int64_t depth, const Communicator& comm)
      : traits(traits_of(op)),
        x(Dtype::f32, own(traits.has_own_x(), comm), depth),
        w(Dtype::f32, columns, depth),
        out(Dtype::f32, own(traits.has_own_out(), comm), columns) {
    fill(x.view, static_cast<float>(comm.rank()) + 1);
    fill(w.view, 1);
    desc = {.op = op,
            .m = kRows,
            .n = columns,
            .k = depth,
            .x = Dtype::f32,
            .weight = weight().kind(),
            .out = Dtype::f32};
  }

  static std::int64_t own(bool shard, const Communicator& comm) {
    return shard ? ops::share_of(kRows, comm.rank(), comm.world()) : kRows;
  }

  Weight weight() const { return WeightView{.view = w.view, .layout = WeightLayout::out_in}; }
  OpCall call() const { return {.x = x.view, .weight = weight(), .out = out.view}; }

  const OperatorTraits& traits;
  Matrix x, w, out;
  OpDesc desc;
};

TEST_P(EveryRow, HasTheNamesOfItsOperator) {
  EXPECT_EQ(name(op()), traits().name);
  EXPECT_EQ(parse_operator(traits().name), op());
  EXPECT_EQ(comm::is_operator(comm::operation_of(op())), traits().communicates());
  if (traits().communicates()) {
    EXPECT_EQ(name(comm::operation_of(op())), traits().name);
  }
}

// Which rows there are, which are added up, and which have reached another rank.
TEST_P(EveryRow, SaysWhichRowsAreAddedUpAndGathered) {
  run_as_threads(2, [](Communicator& comm) {
    const Ones ones(op(), 3, 1, comm);
    prepare(ones.desc, comm).run(ones.call());
    for (std::int64_t row = 0; row < ones.out.view.rows; ++row) {
      const int owner = row < 3 ? 0 : 1;
      const int maker = traits().gathers ? owner : comm.rank();
      const double wanted = traits().reduces ? 1 + 2 : maker + 1;
      EXPECT_EQ(at(ones.out.view, row, 2), wanted) << row;
    }
  });
}

TEST_P(EveryRow, SaysWhichRowsAreRefused) {
  run_as_threads(2, [](Communicator& comm) {
    const Ones ones(op(), 3, 1, comm);
    Op prepared = prepare(ones.desc, comm);
    OpCall call = ones.call();
    call.out = call.out.row_range(0, call.out.rows - 2);
    expect_error(Code::invalid_argument, [&] { prepared.run(call); });
    call = ones.call();
    call.x = call.x.row_range(0, call.x.rows - 2);
    expect_error(Code::invalid_argument, [&] { prepared.run(call); });
    prepared.run(ones.call());
  });
}

// A size of the weight that may differ between ranks is shared among them.
TEST_P(EveryRow, SaysWhichSizesMayDiffer) {
  if (!traits().communicates()) GTEST_SKIP() << "its ranks know nothing of one another";
  const auto run = [](Communicator& comm, std::int64_t columns, std::int64_t depth, bool may) {
    const Ones ones(op(), columns, depth, comm);
    const auto call = [&] { prepare(ones.desc, comm).run(ones.call()); };
    if (may) return call();
    const std::string sentence = expect_error(Code::mismatch, call).what();
    EXPECT_TRUE(contains(sentence, std::string(traits().name))) << sentence;
  };
  run_as_threads(2, [&](Communicator& comm) { run(comm, 3 + comm.rank(), 2, traits().shares_n); });
  run_as_threads(2, [&](Communicator& comm) { run(comm, 3, 2 + comm.rank(), traits().shares_k); });
}

TEST_P(EveryRow, SaysWhichPlansAreRefused) {
  run_as_threads(2, [](Communicator& comm) {
    const Ones ones(op(), 64, 8, comm);
    const auto expect = [&](const char* plan, bool exists) {
      const auto call = [&] {
        prepare(ones.desc, comm, {.plan = parse_plan(plan)}).run(ones.call());
      };
      if (exists) return call();
      expect_error(Code::invalid_argument, call);
    };
    expect("serial", true);
    expect("pipelined parts=2", traits().communicates());
    expect("pipelined parts=2 axis=columns", traits().compute_first);
    expect("fused", traits().is_fused);
  });
}

}  // namespace
}  // namespace plait
