#include "predict/experts.h"

#include <algorithm>

#include "comm/core/executor.h"
#include "comm/session/state.h"
#include "predict/modelled_product.h"
#include "predict/reserved_memory.h"
#include "simulation/sim_rank.h"
#include "simulation/simulation.h"

namespace plait::predict {
namespace {

class ExpertsRun {
 public:
  ExpertsRun(const Machine& machine, const ExpertsProblem& problem)
      : machine_(machine),
        problem_(problem),
        x_(bytes(problem.desc.dtype, problem.rows)),
        out_(bytes(problem.desc.out, problem.rows)),
        weight_(bytes(problem.desc.weight.dtype, outputs())),
        weights_(static_cast<std::size_t>(problem.rows * problem.desc.top), 1.0F) {}

  // Runs as one rank.
  void run(Schedule schedule, const PredictOptions& options, Communicator& comm) const {
    comm::modelled::SimRank& me = comm::modelled::Simulation::rank_of(comm);
    ModelledProduct product(me, machine_.device);
    if (!options.product) product.leave_out();
    const comm::ScopedExecutor scoped(comm.state().group(), product);
    const ExpertsDesc& desc = problem_.desc;
    ExpertParallelMLP layer(
        desc, comm, {.schedule = schedule, .replicated = problem_.replicated, .threads = 1});
    const std::size_t own = layer.experts_of(comm.rank()).size();
    const auto weights = [&](std::int64_t n, std::int64_t k) {
      return std::vector<Weight>(own, WeightView{.view = weight_.view(desc.weight.dtype, n, k),
                                                 .layout = WeightLayout::out_in});
    };
    const std::vector<Weight> up = weights(outputs(), desc.hidden);
    const std::vector<Weight> down = weights(desc.hidden, desc.inner);
    const auto whose = static_cast<std::size_t>(problem_.replicated ? 0 : comm.rank());
    layer.forward({.x = x_.view(desc.dtype, problem_.rows, desc.hidden),
                   .ids = problem_.ids[whose],
                   .weights = weights_,
                   .up = up,
                   .down = down,
                   .out = out_.view(desc.out, problem_.rows, desc.hidden)});
    me.drain();
  }

 private:
  std::int64_t outputs() const { return 2 * problem_.desc.inner; }
  std::size_t bytes(Dtype dtype, std::int64_t rows) const {
    const std::int64_t columns = std::max(problem_.desc.hidden, problem_.desc.inner);
    return static_cast<std::size_t>(rows * columns) * size_of(dtype);
  }

  const Machine& machine_;
  const ExpertsProblem& problem_;
  ReservedMemory x_, out_, weight_;  // of all ranks
  std::vector<float> weights_;
};

}  // namespace

Outcome predict(const Machine& machine, const ExpertsProblem& problem, Schedule schedule,
                const PredictOptions& options) {
  const ExpertsRun rank(machine, problem);
  comm::modelled::SimulationOptions how = simulation_options(machine, options.records);
  how.no_storage = false;  // ranks read numbers of rows from what comes
  comm::modelled::Simulation simulation(how);
  simulation.run([&](Communicator& comm) { rank.run(schedule, options, comm); });
  Outcome outcome = {.time = simulation.end(), .network_work = simulation.network_work()};
  if (options.records) outcome.records = simulation.take_records();
  return outcome;
}

base::Nanoseconds products_alone(const Machine& machine, const ExpertsProblem& problem) {
  const ExpertsDesc& desc = problem.desc;
  const auto index = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  std::vector<std::int64_t> rows(index(desc.experts), 0);
  for (const auto& ids : problem.ids)
    for (const std::int64_t id : ids)
      if (id >= 0) ++rows[index(id)];
  double longest = 0;
  for (int rank = 0; rank < machine.ranks; ++rank) {
    const Shard own = balanced_shard(rows.size(), rank, machine.ranks);
    std::vector<std::int64_t> its;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool is_own = desc.ranks.empty() ? i >= own.offset && i < own.offset + own.count
                                             : desc.ranks[i] == rank;
      if (is_own && rows[i] > 0) its.push_back(rows[i]);
    }
    if (its.empty()) continue;
    const auto grouped = [&](std::int64_t n, std::int64_t k, Dtype out) {
      return grouped_time(machine.device, its, n, k,
                          {.x = static_cast<double>(size_of(desc.dtype)),
                           .weight = static_cast<double>(size_of(desc.weight.dtype)),
                           .out = static_cast<double>(size_of(out))});
    };
    const double time = grouped(2 * desc.inner, desc.hidden, Dtype::f32) +
                        grouped(desc.hidden, desc.inner, desc.wire);
    longest = std::max(longest, time);
  }
  return static_cast<base::Nanoseconds>(longest);
}

}  // namespace plait::predict
