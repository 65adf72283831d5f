// The function between an expert's two products. The bits of an element depend on its
// own inputs alone, and not on the processor's mathematical library.
#pragma once

#include <cstdint>
#include <limits>

#include "plait/experts.h"
#include "plait/tensor_view.h"

namespace plait::experts {

// How many outputs the first product has for `inner` results.
constexpr std::int64_t outputs_of(ExpertActivation activation, std::int64_t inner) {
  return activation == ExpertActivation::silu ? inner : 2 * inner;
}

struct Activation {
  ExpertActivation kind;
  float alpha = 1.0F;
  float limit = std::numeric_limits<float>::infinity();
  float added = 0.0F;
};

inline Activation activation_of(const ExpertsDesc& desc) {
  return {.kind = desc.activation, .alpha = desc.alpha, .limit = desc.limit, .added = desc.added};
}

// to = activation(from) * weight, rounded once. `from`: f32. A null weight is none.
void activate(const Activation& activation, const float* from, const float* weight,
              const TensorView& to);

struct ActivationGradient {
  const float* from;
  const float* grad;  // of the activation's results, without the weight
  float weight;
};

// Makes the weighted results again, rounded, and the gradient of `from`, rounded. Returns the
// gradient of the weight: the sum of grad * activation(from), in order.
float activate_back(const Activation& activation, const ActivationGradient& of,
                    const TensorView& results, const TensorView& grad_from);

}  // namespace plait::experts
