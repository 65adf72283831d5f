#include "chaos/product.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "base/check.h"
#include "plait/collectives.h"

namespace plait::chaos {
namespace {

constexpr std::array<Operator, 6> kOps = {
    Operator::matmul_all_reduce, Operator::matmul_reduce_scatter, Operator::matmul_all_gather,
    Operator::all_gather_matmul, Operator::reduce_scatter_matmul, Operator::all_reduce_matmul};

Plan random_plan(Operator op, Random& shared) {
  Plan plan = {.schedule = static_cast<Schedule>(shared.below(3)),
               .parts = 1 + shared.below(6),
               .axis = shared.one_in(3) ? Axis::rows : Axis::natural,
               .chunk = shared.one_in(2) ? 0 : 1 + shared.below(100),
               .poll = shared.below(200)};
  if (!has_schedule(op, plan.schedule)) plan.schedule = Schedule::pipelined;
  return plan;
}

void fill(const Buffer& buffer, float value) {
  std::fill_n(reinterpret_cast<float*>(buffer.data()), buffer.bytes() / sizeof(float), value);
}

Buffer filled(std::int64_t rows, std::int64_t cols, float value) {
  Buffer buffer = Buffer::for_tensor(Dtype::f32, rows, cols);
  fill(buffer, value);
  return buffer;
}

}  // namespace

Product::Problem Product::make_problem(Random& shared) {
  const Operator op = kOps[shared.below(kOps.size())];
  const bool large = shared.one_in(3);
  return {.desc = {.op = op,
                   .m = shared.below(large ? 250 : 20),
                   .n = 1 + shared.below(large ? 400 : 100),
                   .k = 1 + shared.below(large ? 120 : 50),
                   .x = Dtype::f32,
                   .weight = {.dtype = Dtype::f32},
                   .out = Dtype::f32},
          .plan = random_plan(op, shared)};
}

Product::Product(Communicator& comm, Random& shared) : Product(comm, make_problem(shared)) {}

// One thread: with more ranks than processors, spinning teams of threads would make ranks late.
Product::Product(Communicator& comm, const Problem& problem)
    : rank_(comm.rank()),
      world_(comm.world()),
      problem_(problem),
      x_(filled(count(ops::shapes_of(problem.desc.op).x), problem.desc.k,
                static_cast<float>(rank_ + 1))),
      weight_(filled(problem.desc.n, problem.desc.k, 1)),
      out_(filled(count(ops::shapes_of(problem.desc.op).out), problem.desc.n, 0)),
      op_(prepare(problem.desc, comm, {.plan = problem.plan, .threads = 1})) {}

std::int64_t Product::count(ops::Rows rows) const {
  return ops::count(rows, problem_.desc.m, rank_, world_);
}

float Product::expected(std::int64_t row) const {
  int ranks = 0;
  for (int rank = 0; rank < world_; ++rank) {
    const Range rows = ops::shard_of(problem_.desc.m, rank, world_);
    const bool owns = rows.begin <= row && row < rows.end;
    if (sums_over_ranks(op()) || owns) ranks += rank + 1;
  }
  return static_cast<float>(ranks * problem_.desc.k);
}

void Product::run() {
  const ops::Shapes shapes = ops::shapes_of(op());
  fill(out_, -1);
  const TensorView out = out_.view(Dtype::f32, count(shapes.out), problem_.desc.n);
  op_.run({.x = x_.view(Dtype::f32, count(shapes.x), problem_.desc.k),
           .weight = WeightView{.view = weight_.view(Dtype::f32, problem_.desc.n, problem_.desc.k),
                                .layout = WeightLayout::out_in},
           .out = out});
  for (std::int64_t row = 0; row < out.rows; ++row) {
    const float wanted = expected(row);
    const std::span found(static_cast<const float*>(out.row(row)),
                          static_cast<std::size_t>(out.cols));
    const auto wrong =
        std::find_if(found.begin(), found.end(), [&](float value) { return value != wanted; });
    if (wrong == found.end()) continue;
    throw std::runtime_error(base::sentence(name(op()), " (", name(problem_.plan), ") gave ",
                                            *wrong, " instead of ", wanted, " in row ", row));
  }
}

}  // namespace plait::chaos
