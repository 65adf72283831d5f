// Predicts how long a layer of experts takes on another machine. Modelled ranks run the layer of
// plait/experts.h, as they run operators (predict/operator.h), by rows whose experts are given.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/experts.h"
#include "predict/operator.h"

namespace plait::predict {

struct ExpertsProblem {
  ExpertsDesc desc;                            // weights are not packed: nothing is multiplied
  std::int64_t rows;                           // of each rank
  std::vector<std::vector<std::int64_t>> ids;  // by rank; of one, where the batch is replicated
  bool replicated = false;
};

// `options.product` leaves out the products alone.
Outcome predict(const Machine& machine, const ExpertsProblem& problem, Schedule schedule,
                const PredictOptions& options = {});

// The time of the products, by themselves, of the rank that has most rows.
base::Nanoseconds products_alone(const Machine& machine, const ExpertsProblem& problem);

}  // namespace plait::predict
