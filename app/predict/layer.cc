#include "predict/layer.h"

#include <algorithm>

#include "comm/core/executor.h"
#include "comm/session/state.h"
#include "ops/shapes.h"
#include "plait/linear.h"
#include "predict/modelled_product.h"
#include "predict/reserved_memory.h"
#include "simulation/sim_rank.h"
#include "simulation/simulation.h"

namespace plait::predict {
namespace {

// The times at which the last rank reached each point.
struct Moments {
  base::Nanoseconds begin = 0;
  base::Nanoseconds forward = 0;
  base::Nanoseconds backward = 0;
};

// The matrices of a step. Each has an address range of its own.
struct Matrices {
  ReservedMemory x, weight, out, grad_x, grad_weight, grad_out;

  Matrices(std::size_t input_bytes, std::size_t weight_bytes, std::size_t output_bytes)
      : x(input_bytes),
        weight(weight_bytes),
        out(output_bytes),
        grad_x(input_bytes),
        grad_weight(weight_bytes),
        grad_out(output_bytes) {}
};

class LayerRun {
 public:
  LayerRun(const Machine& machine, const LayerProblem& problem, const Plan& plan)
      : machine_(machine),
        problem_(problem),
        options_({.sequence_parallel = problem.sequence_parallel,
                  .recompute_all_gather = problem.recompute_all_gather,
                  .column_backward = problem.column_backward,
                  .operators = {.wire = problem.wire, .plan = plan, .threads = 1}}),
        matrices_(bytes(problem.rows, problem.inputs), bytes(problem.outputs, problem.inputs),
                  bytes(problem.rows, problem.outputs)) {}

  // Runs as one rank.
  void run(Communicator& comm, Moments& moments) const {
    comm::modelled::SimRank& me = comm::modelled::Simulation::rank_of(comm);
    ModelledProduct product(me, machine_.device);
    const comm::ScopedExecutor scoped(comm.state().group(), product);
    if (problem_.kind == plan::LinearKind::column) {
      run<ColumnParallelLinear>(comm, moments);
    } else {
      run<RowParallelLinear>(comm, moments);
    }
  }

 private:
  std::size_t bytes(std::int64_t rows, std::int64_t cols) const {
    return static_cast<std::size_t>(rows * cols) * size_of(problem_.dtype);
  }

  template <class Layer>
  void run(Communicator& comm, Moments& moments) const {
    comm::modelled::SimRank& me = comm::modelled::Simulation::rank_of(comm);
    const bool column = problem_.kind == plan::LinearKind::column;
    const bool sharded = problem_.sequence_parallel;
    const std::int64_t inputs =
        column ? problem_.inputs : ops::share_of(problem_.inputs, comm.rank(), comm.world());
    const std::int64_t outputs =
        column ? ops::share_of(problem_.outputs, comm.rank(), comm.world()) : problem_.outputs;
    const std::int64_t own_rows = ops::share_of(problem_.rows, comm.rank(), comm.world());
    const std::int64_t rows_in = sharded && column ? own_rows : problem_.rows;
    const std::int64_t rows_out = sharded && !column ? own_rows : problem_.rows;
    const auto view = [&](const ReservedMemory& of, std::int64_t rows, std::int64_t cols) {
      return of.view(problem_.dtype, rows, cols);
    };
    const WeightView weight = {.view = view(matrices_.weight, outputs, inputs),
                               .layout = WeightLayout::out_in};
    const TensorView x = view(matrices_.x, rows_in, inputs);
    Layer layer({.inputs = inputs,
                 .outputs = outputs,
                 .layout = weight.layout,
                 .weight = {.dtype = problem_.dtype}},
                comm, options_);
    const auto at = [&](base::Nanoseconds& moment) {
      me.drain();
      moment = std::max(moment, me.now());
    };
    at(moments.begin);
    LinearState state;
    layer.forward({.x = x, .weight = weight, .out = view(matrices_.out, rows_out, outputs)},
                  &state);
    at(moments.forward);
    layer.backward({.x = x,
                    .weight = weight,
                    .grad_out = view(matrices_.grad_out, rows_out, outputs),
                    .grad_x = view(matrices_.grad_x, rows_in, inputs),
                    .grad_weight = view(matrices_.grad_weight, outputs, inputs)},
                   &state);
    at(moments.backward);
  }

  const Machine& machine_;
  const LayerProblem& problem_;
  LinearOptions options_;
  Matrices matrices_;
};

}  // namespace

LayerTimes predict(const Machine& machine, const LayerProblem& problem, const Plan& plan) {
  const LayerRun layer(machine, problem, plan);
  comm::modelled::Simulation simulation(simulation_options(machine, /*records=*/false));
  Moments moments;
  simulation.run([&](Communicator& comm) { layer.run(comm, moments); });
  return {.forward = moments.forward - moments.begin,
          .backward = moments.backward - moments.forward};
}

}  // namespace plait::predict
