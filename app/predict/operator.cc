#include "predict/operator.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "comm/core/executor.h"
#include "comm/session/state.h"
#include "ops/planned_op.h"
#include "ops/shapes.h"
#include "plait/columns.h"
#include "plan/sizes.h"
#include "predict/modelled_product.h"
#include "predict/reserved_memory.h"
#include "simulation/sim_rank.h"
#include "simulation/simulation.h"
#include "ulysses/columns.h"
#include "ulysses/ulysses_op.h"

namespace plait::predict {
namespace {

// The nanoseconds in which a waiting rank polls one peer, one after another.
constexpr base::Nanoseconds kPollCost = 10;

bool gathers_columns(const Problem& problem) {
  return problem.exchange && problem.exchange->family == Family::columns;
}

// One rank's share of n and k.
struct Shares {
  std::int64_t n, k;

  Shares(const Problem& problem, int rank, int world) : n(problem.n), k(problem.k) {
    const OperatorTraits& traits = traits_of(problem.op);
    if (traits.shares_n || gathers_columns(problem)) n = ops::share_of(n, rank, world);
    if (traits.shares_k) k = ops::share_of(k, rank, world);
  }
};

// The dtype of a product's result: partial sums before they are sent, or the output.
Dtype product_out(const Problem& problem) {
  return traits_of(problem.op).shares_k ? plan::partial_dtype(problem.wire) : problem.out;
}

ProductBytes bytes_of(const Problem& problem) {
  return {.x = static_cast<double>(size_of(problem.x)),
          .weight = problem.weight_bytes,
          .out = static_cast<double>(size_of(product_out(problem)))};
}

// The nanoseconds of rank 0's product. Refuses products that would take years, because the clock
// can count only some hundreds of years.
double time_of_product(const Machine& machine, const Problem& problem) {
  constexpr double kLongest = 1e17;
  const Shares shares(problem, 0, machine.ranks);
  const std::int64_t rows =
      problem.exchange && !gathers_columns(problem)
          ? ops::share_of(problem.m, 0, machine.ranks)
          : ops::count(ops::multiplied_rows(problem.op), problem.m, 0, machine.ranks);
  const double takes = product_time(machine.device, {rows, shares.n, shares.k}, bytes_of(problem));
  PLAIT_CHECK(takes <= kLongest, "m=", problem.m, " n=", problem.n, " k=", problem.k,
              " would take more than three years");
  return takes;
}

class RankRun {
 public:
  RankRun(const Machine& machine, const Problem& problem, const ReservedMemory& memory)
      : machine_(machine), problem_(problem), memory_(memory) {}

  void run(const Plan& plan, const PredictOptions& options, Communicator& comm) const {
    comm::modelled::SimRank& me = comm::modelled::Simulation::rank_of(comm);
    ModelledProduct product(me, machine_.device, problem_.weight_bytes);
    if (!options.product) product.leave_out();
    const comm::ScopedExecutor scoped(comm.state().group(), product);
    problem_.exchange ? run_exchange(*problem_.exchange, plan, comm) : run_operator(plan, comm);
    me.drain();
  }

 private:
  void run_operator(const Plan& plan, Communicator& comm) const {
    const Shares shares(problem_, comm.rank(), comm.world());
    ops::PlannedOp prepared({.op = problem_.op,
                             .m = problem_.m,
                             .n = shares.n,
                             .k = shares.k,
                             .x = problem_.x,
                             .weight = {.dtype = problem_.x},
                             .out = problem_.out,
                             .gathered = problem_.gathered},
                            comm, {.wire = problem_.wire, .plan = plan, .threads = 1});
    prepared.run(call(shares, comm));
  }

  void run_gather(const Exchange& what, const Plan& plan, Communicator& comm) const {
    const ColumnRange own = what.columns[static_cast<std::size_t>(comm.rank())].front();
    const std::int64_t outputs = ops::share_of(problem_.n, comm.rank(), comm.world());
    const ReservedMemory apart(largest_matrix(problem_));
    const Weight weight = WeightView{.view = apart.view(problem_.x, outputs, problem_.k),
                                     .layout = WeightLayout::out_in};
    const TensorView x = memory_.view(problem_.x, problem_.m, problem_.k);
    const ColumnsOptions options = {.threads = 1, .plan = plan};
    if (what.product_first) {
      const TensorView out = apart.view(problem_.out, problem_.m, problem_.n);
      return matmul_all_gather_columns(x, weight, out, comm, options);
    }
    const ReservedMemory results(largest_matrix(problem_));
    all_gather_columns_matmul(x.column_range(own.first, own.first + own.count), weight, x,
                              results.view(problem_.out, problem_.m, outputs), comm, options);
  }

  void run_exchange(const Exchange& what, const Plan& plan, Communicator& comm) const {
    if (gathers_columns(problem_)) return run_gather(what, plan, comm);
    const std::int64_t rows = ops::share_of(problem_.m, comm.rank(), comm.world());
    const std::int64_t columns =
        ulysses::count_of(what.columns[static_cast<std::size_t>(comm.rank())]);
    const ConstTensorView x = what.product_first ? memory_.view(problem_.x, rows, problem_.k)
                                                 : memory_.view(problem_.x, problem_.m, columns);
    const Weight weight = WeightView{.view = memory_.view(problem_.x, problem_.n, problem_.k),
                                     .layout = WeightLayout::out_in};
    const TensorView out = what.product_first ? memory_.view(problem_.out, problem_.m, columns)
                                              : memory_.view(problem_.out, rows, problem_.n);
    ulysses::UlyssesOp prepared({.product_first = what.product_first,
                                 .n = problem_.n,
                                 .k = problem_.k,
                                 .x = problem_.x,
                                 .weight = weight.kind(),
                                 .out = problem_.out,
                                 .threads = 1,
                                 .backend = {},
                                 .columns = ulysses::joined(what.columns)},
                                comm);
    prepared.run({x, weight, out}, problem_.m, {.plan = plan, .threads = 1});
  }

  OpCall call(const Shares& shares, const Communicator& comm) const {
    const ops::Shapes shapes = ops::shapes_of(problem_.op);
    const auto rows = [&](ops::Rows which) {
      return ops::count(which, problem_.m, comm.rank(), comm.world());
    };
    OpCall call = {.x = memory_.view(problem_.x, rows(shapes.x), shares.k),
                   .weight = WeightView{.view = memory_.view(problem_.x, shares.n, shares.k),
                                        .layout = WeightLayout::out_in},
                   .out = memory_.view(problem_.out, rows(shapes.out), shares.n)};
    if (problem_.gathered) call.gathered = memory_.view(problem_.x, problem_.m, shares.k);
    return call;
  }

  const Machine& machine_;
  const Problem& problem_;
  const ReservedMemory& memory_;
};

}  // namespace

std::size_t largest_matrix(const Problem& problem) {
  constexpr double kMost = 1ULL << 46;  // half of the address space of a process
  const auto elements = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  const double bytes =
      sizeof(float) * std::max({elements(problem.m, problem.k), elements(problem.n, problem.k),
                                elements(problem.m, problem.n)});
  PLAIT_CHECK(bytes <= kMost, "m=", problem.m, " n=", problem.n, " k=", problem.k,
              " is too large to be simulated");
  return static_cast<std::size_t>(bytes);
}

comm::modelled::SimulationOptions simulation_options(const Machine& machine, bool records) {
  return {.ranks = machine.ranks,
          .network = machine.network,
          .no_storage = true,
          .memory_costs = {.bytes_per_second = machine.device.memory(),
                           .each = machine.device.memory_launch,
                           .in_background = machine.device.in_background},
          .poll_cost = kPollCost,
          .records = records};
}

Outcome predict(const Machine& machine, const Problem& problem, const Plan& plan,
                const PredictOptions& options) {
  const ReservedMemory memory(largest_matrix(problem));
  time_of_product(machine, problem);  // throws if the product takes too long
  const RankRun rank(machine, problem, memory);
  comm::modelled::Simulation simulation(simulation_options(machine, options.records));
  simulation.run([&](Communicator& comm) { rank.run(plan, options, comm); });
  Outcome outcome = {.time = simulation.end(), .network_work = simulation.network_work()};
  if (options.records) outcome.records = simulation.take_records();
  return outcome;
}

base::Nanoseconds product_alone(const Machine& machine, const Problem& problem) {
  const double takes = time_of_product(machine, problem);
  return machine.device.launch + static_cast<base::Nanoseconds>(std::llround(takes));
}

}  // namespace plait::predict
