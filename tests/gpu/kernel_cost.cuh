// The time of a kernel beside the best that cuBLASLt does for the same product, on the same
// operands and in the same minute.
//
//   const KernelCost cost = kernel_cost<__nv_bfloat16, __nv_bfloat16>(
//       problem, [&](const LtOperands& set) { launch_ours(set, stream); }, stream);
//   cost.share()   // 0.95: cuBLASLt needs 95 % of the time of ours
//
// cuBLASLt's candidate is chosen first, alone. Then both run in turn, so that a change of the
// card's clock hits both.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "gpu/fill.cuh"
#include "gpu/lt/lt_best.h"
#include "gpu/timing.cuh"

namespace plait::gpu {

template <class T>
constexpr Dtype kDtypeOf = Dtype::f32;
template <>
constexpr Dtype kDtypeOf<__nv_bfloat16> = Dtype::bf16;
template <>
constexpr Dtype kDtypeOf<__half> = Dtype::f16;

template <class In, class Out>
struct Operands {
  // Rows are contiguous, whatever the strides of the problem.
  explicit Operands(const LtProblem& problem)
      : x(problem.m * problem.k), w(problem.n * problem.k), out(problem.m * problem.n) {}

  LtOperands view() const { return {.x = x.data(), .w = w.data(), .out = out.data()}; }
  std::size_t bytes() const { return x.bytes() + w.bytes() + out.bytes(); }

  void fill_uniform(std::uint64_t seed, cudaStream_t stream) {
    fill_random(x.data(), x.count(), 2 * seed, stream);
    fill_random(w.data(), w.count(), 2 * seed + 1, stream);
  }

  DeviceBuffer<In> x, w;
  DeviceBuffer<Out> out;
};

// Operands of uniform values, in so many sets that none is in the L2 cache when its turn comes.
template <class In, class Out>
class OperandSets {
 public:
  OperandSets(const LtProblem& problem, cudaStream_t stream) {
    do {
      auto& set = sets_.emplace_back(problem);
      set.fill_uniform(sets_.size(), stream);
      views_.push_back(set.view());
    } while (static_cast<int>(sets_.size()) < sets_beyond_l2(sets_.front().bytes()));
  }

  std::span<const LtOperands> views() const { return views_; }
  const LtOperands& view(int set) const { return views_[static_cast<std::size_t>(set)]; }
  int count() const { return static_cast<int>(views_.size()); }

 private:
  std::vector<Operands<In, Out>> sets_;
  std::vector<LtOperands> views_;
};

struct KernelCost {
  double ours_us = 0;
  double peer_us = 0;
  LtChoice choice = {};  // cuBLASLt's

  double share() const { return peer_us / ours_us; }
};

// `ours` enqueues one product on `stream`. The dtypes of the problem are replaced by In and Out.
// Sets of operands are made and freed by each call.
template <class In, class Out>
KernelCost kernel_cost(LtProblem problem, const std::function<void(const LtOperands&)>& ours,
                       cudaStream_t stream, Rounds rounds = {}) {
  problem.in = kDtypeOf<In>;
  problem.out = kDtypeOf<Out>;
  const OperandSets<In, Out> sets(problem, stream);
  LtProduct product(problem);
  const LtBest best = best_time(product, sets.views(), {}, stream);
  if (best.candidate < 0) return {};
  rounds.sets = sets.count();
  const auto medians =
      interleaved_medians({[&](int set) { ours(sets.view(set)); },
                           [&](int set) { product.run(sets.view(set), best.candidate, stream); }},
                          rounds, stream);
  check_cuda(cudaStreamSynchronize(stream));
  return {.ours_us = medians[0], .peer_us = medians[1], .choice = product.choice(best.candidate)};
}

inline double geometric_mean(std::span<const double> values) {
  double logarithms = 0;
  for (const double value : values) logarithms += std::log(value);
  return std::exp(logarithms / static_cast<double>(values.size()));
}

}  // namespace plait::gpu
