#include "predict/heads.h"

#include <cmath>
#include <vector>

#include "comm/core/executor.h"
#include "comm/session/state.h"
#include "ops/shapes.h"
#include "plait/vocabulary.h"
#include "predict/modelled_product.h"
#include "predict/reserved_memory.h"
#include "simulation/sim_rank.h"
#include "simulation/simulation.h"

namespace plait::predict {
namespace {

class HeadRun {
 public:
  HeadRun(const Machine& machine, const HeadProblem& problem)
      : machine_(machine),
        problem_(problem),
        bytes_(largest_matrix(gathered_logits(problem, machine.ranks))),
        operands_(bytes_),
        dx_(bytes_),
        dw_(bytes_),
        targets_(static_cast<std::size_t>(problem.m), 0),
        grad_loss_(targets_.size(), 1.0F) {}

  // Runs as one rank.
  void run(const PredictOptions& options, Communicator& comm) const {
    comm::modelled::SimRank& me = comm::modelled::Simulation::rank_of(comm);
    ModelledProduct product(me, machine_.device);
    if (!options.product) product.leave_out();
    const comm::ScopedExecutor scoped(comm.state().group(), product);
    const Range own = ops::shard_of(problem_.n, comm.rank(), comm.world());
    const VocabularyOptions how = {.first_id = own.begin, .logits = problem_.dtype, .threads = 1};
    problem_.head == Head::top ? run_top(own.end - own.begin, comm, how)
                               : run_loss(own.end - own.begin, comm, how);
    me.drain();
  }

 private:
  TensorView view(const ReservedMemory& memory, std::int64_t rows) const {
    return memory.view(problem_.dtype, rows, problem_.k);
  }
  WeightView weight(std::int64_t share) const {
    return {.view = view(operands_, share), .layout = WeightLayout::out_in};
  }

  void run_top(std::int64_t share, Communicator& comm, const VocabularyOptions& how) const {
    std::vector<float> values(targets_.size() * static_cast<std::size_t>(problem_.top));
    std::vector<std::int64_t> ids(values.size());
    matmul_top(view(operands_, problem_.m), weight(share),
               {.k = problem_.top, .values = values, .ids = ids}, comm, how);
  }

  void run_loss(std::int64_t share, Communicator& comm, const VocabularyOptions& how) const {
    const ConstTensorView x = view(operands_, problem_.m);
    std::vector<float> losses(targets_.size());
    if (problem_.head != Head::loss) {
      const auto call = problem_.head == Head::log_probs ? matmul_log_probs : matmul_cross_entropy;
      return call({.x = x, .weight = weight(share), .targets = targets_, .out = losses}, comm,
                  {.vocabulary = how});
    }
    std::vector<float> sums(losses.size());
    matmul_cross_entropy_with_gradient({.x = x,
                                        .weight = weight(share),
                                        .targets = targets_,
                                        .log_sum_exp = {},
                                        .grad_loss = grad_loss_,
                                        .dx = view(dx_, problem_.m),
                                        .dw = view(dw_, share)},
                                       {.losses = losses, .log_sum_exp = sums}, comm,
                                       {.vocabulary = how});
  }

  const Machine& machine_;
  const HeadProblem& problem_;
  std::size_t bytes_;
  ReservedMemory operands_, dx_, dw_;  // of all ranks
  std::vector<std::int64_t> targets_;
  std::vector<float> grad_loss_;
};

}  // namespace

Problem gathered_logits(const HeadProblem& problem, int ranks) {
  ColumnGroups columns;
  for (int rank = 0; rank < ranks; ++rank) {
    const Range own = ops::shard_of(problem.n, rank, ranks);
    columns.push_back({{own.begin, own.end - own.begin}});
  }
  return {.exchange = Exchange{.family = Family::columns, .columns = std::move(columns)},
          .m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .x = problem.dtype,
          .out = problem.dtype,
          .weight_bytes = static_cast<double>(size_of(problem.dtype))};
}

Outcome predict(const Machine& machine, const HeadProblem& problem, const PredictOptions& options) {
  products_alone(machine, problem);  // throws if they take too long
  const HeadRun rank(machine, problem);
  comm::modelled::SimulationOptions how = simulation_options(machine, options.records);
  how.no_storage = false;  // ranks read one another's shares and terms from what comes
  comm::modelled::Simulation simulation(how);
  simulation.run([&](Communicator& comm) { rank.run(options, comm); });
  Outcome outcome = {.time = simulation.end(), .network_work = simulation.network_work()};
  if (options.records) outcome.records = simulation.take_records();
  return outcome;
}

base::Nanoseconds products_alone(const Machine& machine, const HeadProblem& problem) {
  const base::Nanoseconds logits = product_alone(machine, gathered_logits(problem, machine.ranks));
  if (problem.head != Head::loss) return logits;
  const std::int64_t share = ops::share_of(problem.n, 0, machine.ranks);
  const auto element = static_cast<double>(size_of(problem.dtype));
  const ProductBytes bytes = {.x = element, .weight = element, .out = element};
  const double gradients = product_time(machine.device, {problem.m, problem.k, share}, bytes) +
                           product_time(machine.device, {share, problem.k, problem.m}, bytes);
  return logits + 2 * machine.device.launch +
         static_cast<base::Nanoseconds>(std::llround(gradients));
}

}  // namespace plait::predict
