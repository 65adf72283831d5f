// Predicts how long an operator takes on another machine. Simulated ranks
// (simulation/simulation.h) run its real schedule; their products, copies and sums take the time
// of a modelled device.
//
//   const Machine machine = {.device = find_device("h100"), .network = find_network("nvlink4"),
//                            .ranks = 8};
//   predict(machine, {.op = Operator::matmul_all_reduce, .m = 4096, .n = 8192, .k = 8192}, plan)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plait/dtype.h"
#include "plait/operator.h"
#include "plait/plan.h"
#include "plait/ulysses.h"
#include "predict/device.h"
#include "predict/network.h"
#include "simulation/simulation.h"
#include "trace/record.h"

namespace plait::predict {

struct Machine {
  Device device;
  Network network;
  int ranks = 1;
};

// The options of the simulation that runs the machine's ranks.
comm::modelled::SimulationOptions simulation_options(const Machine& machine, bool records);

// A call of plait/ulysses.h or plait/columns.h.
struct Exchange {
  Family family = Family::ulysses;
  bool product_first = true;
  ColumnGroups columns = {};
};

// The sizes of the whole problem, of which each rank has its share.
struct Problem {
  Operator op = Operator::matmul;
  std::optional<Exchange> exchange = {};  // `op` is its product
  std::int64_t m = 0, n = 0, k = 0;
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;
  double weight_bytes = 2;  // per element
  bool gathered = false;    // also returns all gathered rows of x
};

// The bytes of the largest matrix, as if it were f32. Refuses those that no process could hold.
std::size_t largest_matrix(const Problem& problem);

// The problem to simulate.
struct PredictOptions {
  bool product = true;
  bool records = false;
};

struct Outcome {
  base::Nanoseconds time;                        // until the last rank is done
  base::Nanoseconds network_work = 0;            // of the processor that has most of it
  std::vector<trace::RankRecords> records = {};  // by rank, if requested
};

Outcome predict(const Machine& machine, const Problem& problem, const Plan& plan,
                const PredictOptions& options = {});

// The time of a rank's product in this operator, by itself and in one piece.
base::Nanoseconds product_alone(const Machine& machine, const Problem& problem);

}  // namespace plait::predict
