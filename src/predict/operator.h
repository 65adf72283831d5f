// How long an operator takes on a machine that is not here: its own schedule, played by modelled
// ranks (comm/modelled/world.h) whose products, copies and sums take a modelled device's time.
//
//   const Machine machine = {.device = find_device("h100"), .network = find_network("nvlink4"),
//                            .ranks = 8};
//   predict(machine, {.op = Operator::matmul_all_reduce, .m = 4096, .n = 8192, .k = 8192}, plan)
#pragma once

#include <cstdint>
#include <vector>

#include "comm/modelled/world.h"
#include "plait/dtype.h"
#include "plait/operator.h"
#include "plait/plan.h"
#include "predict/device.h"
#include "predict/network.h"
#include "trace/record.h"

namespace plait::predict {

struct Machine {
  Device device;
  Network network;
  int ranks = 1;
};

// Where the machine's ranks are played.
comm::modelled::WorldOptions world_of(const Machine& machine, bool records);

// Sizes of the whole problem: each rank has its share.
struct Problem {
  Operator op = Operator::matmul;
  std::int64_t m, n, k;
  Dtype x = Dtype::bf16;
  Dtype out = Dtype::bf16;
  Dtype wire = Dtype::f32;
  double weight_bytes = 2;  // an element
  bool gathered = false;    // all rows of x are asked for too
};

// What is played: all of it, or less.
struct Play {
  bool product = true;
  bool records = false;
};

struct Outcome {
  base::Nanoseconds time;                   // until the last rank is done
  std::vector<trace::RankRecords> records;  // by rank, where they were asked for
};

Outcome predict(const Machine& machine, const Problem& problem, const Plan& plan,
                const Play& play = {});

// The product that a rank has in the operator, by itself and in one piece.
base::Nanoseconds product_alone(const Machine& machine, const Problem& problem);

}  // namespace plait::predict
