// Predicts how long what follows a product by ranks' shares of a vocabulary takes on another
// machine. Modelled ranks run the calls of plait/vocabulary.h, as they run operators
// (predict/operator.h).
#pragma once

#include <cstdint>

#include "predict/operator.h"

namespace plait::predict {

enum class Head : std::uint8_t {
  top,         // matmul_top()
  loss,        // matmul_cross_entropy_with_gradient()
  loss_alone,  // matmul_cross_entropy()
  log_probs,   // matmul_log_probs()
};

struct HeadProblem {
  Head head;
  std::int64_t m, n, k;  // n: ids of all ranks
  Dtype dtype = Dtype::bf16;
  std::int64_t top = 1;  // logits that are kept of a row
};

// Logits are used while they are in a cache: to search them and to add them up takes no time.
// `options.product` leaves out the products alone.
Outcome predict(const Machine& machine, const HeadProblem& problem,
                const PredictOptions& options = {});

// The time of a rank's products, by themselves: one, or the three of a loss with its gradient.
base::Nanoseconds products_alone(const Machine& machine, const HeadProblem& problem);

// All logits on every rank in place of the head, as serial columns.
Problem gathered_logits(const HeadProblem& problem, int ranks);

}  // namespace plait::predict
