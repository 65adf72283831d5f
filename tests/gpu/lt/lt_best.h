// Measures the candidates of cuBLASLt for a product, and finds the quickest.
//
//   LtProduct product(problem);
//   const LtBest best = best_time(product, operand_sets, {}, stream);
//   product.run(operands, best.candidate, stream);
#pragma once

#include <span>

#include "gpu/lt/lt.h"

namespace plait::gpu {

struct LtEffort {
  int candidates = 8;
  int warmups = 2;
  int runs = 11;
};

struct LtBest {
  int candidate = -1;  // -1: there is none
  double microseconds = 0;
};

// The candidate with the least median time. All candidates run in turn in every round, so that a
// card that gets warmer slows all of them down alike, and each run takes the next set of operands:
// with sets of more than a few times the L2 cache in all, none finds its operands in the cache.
// Waits for the stream. Replaces the product's candidates.
LtBest best_time(LtProduct& product, std::span<const LtOperands> sets, const LtEffort& effort,
                 cudaStream_t stream);

}  // namespace plait::gpu
