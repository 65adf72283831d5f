#include "experts/activation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

// Compiles a loop over elements for longer vectors too. The processor alone chooses between them,
// not PLAIT_ISA. The bits are the same, because this file is compiled with -ffp-contract=off.
// Sanitizers don't run before that choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLAIT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLAIT_CLONES
#endif

namespace plait::experts {
namespace {

// The exp() of the least value is no denormal number yet, and that of the largest is infinite.
constexpr float kLeast = -87.0F;
constexpr float kMost = 89.0F;

// exp(z) = 2^n * exp(r), with |r| <= ln(2) / 2. Taylor's series up to r^7 leaves less than
// 0.3466^8 / 8! = 5.2e-9 of exp(r), a tenth of what rounding to f32 does.
inline float exp_of(float z) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 10 bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kToWhole = 0x1.8p23F;  // numbers as large as this are whole
  z = z < kLeast ? kLeast : z;
  z = z > kMost ? kMost : z;
  const float shifted = z * kLog2E + kToWhole;
  const float n = shifted - kToWhole;
  const float r = (z - n * kLn2High) - n * kLn2Low;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  // The last bits of `shifted` are n, and those of a float's exponent are counted from 127.
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  return sum * std::bit_cast<float>(exponent);
}

inline float sigmoid(float z) { return 1.0F / (1.0F + exp_of(-z)); }

// Elements that are made at once.
constexpr std::int64_t kBlock = 256;

// The inputs of elements, and how far it is from one to the next.
struct Inputs {
  const float* gates;
  const float* ups;  // the gates if there are none
  std::int64_t step;
};

Inputs inputs_of(ExpertActivation kind, const float* from, std::int64_t inner, std::int64_t begin) {
  switch (kind) {
    case ExpertActivation::swiglu:
      return {.gates = from + begin, .ups = from + inner + begin, .step = 1};
    case ExpertActivation::swiglu_interleaved:
      return {.gates = from + 2 * begin, .ups = from + 2 * begin + 1, .step = 2};
    case ExpertActivation::silu:
      break;
  }
  return {.gates = from + begin, .ups = from + begin, .step = 1};
}

inline float at_most(float value, float limit) { return value > limit ? limit : value; }
inline float within(float value, float limit) {
  value = at_most(value, limit);
  return value < -limit ? -limit : value;
}

// Compilers know the step, and whether there is an up, where these are called.
inline __attribute__((always_inline)) void make_values(const Activation& activation,
                                                       const Inputs& from, std::int64_t step,
                                                       bool has_up, float weight,
                                                       std::int64_t count, float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float gate = at_most(from.gates[i * step], activation.limit);
    const float value = gate * sigmoid(activation.alpha * gate);
    const float up =
        has_up ? within(from.ups[i * step], activation.limit) + activation.added : 1.0F;
    to[i] = value * up * weight;
  }
}

PLAIT_CLONES void make_values(const Activation& activation, const Inputs& from, float weight,
                              std::int64_t count, float* to) {
  if (from.step == 2) {
    make_values(activation, from, 2, true, weight, count, to);
  } else {
    make_values(activation, from, 1, from.ups != from.gates, weight, count, to);
  }
}

struct Slopes {
  float* gates;
  float* ups;
};

inline __attribute__((always_inline)) void make_slopes(const Activation& activation,
                                                       const Inputs& from, std::int64_t step,
                                                       bool has_up, const float* __restrict grad,
                                                       std::int64_t count, float* __restrict values,
                                                       const Slopes& to) {
  const float alpha = activation.alpha;
  const float limit = activation.limit;
  for (std::int64_t i = 0; i < count; ++i) {
    const float gate = at_most(from.gates[i * step], limit);
    const float s = sigmoid(alpha * gate);
    const float slope = s + alpha * gate * s * (1.0F - s);
    const float given = has_up ? from.ups[i * step] : 1.0F;
    const float up = within(given, limit);
    const float factor = has_up ? up + activation.added : 1.0F;
    values[i] = gate * s * factor;
    to.gates[i * step] = from.gates[i * step] > limit ? 0.0F : grad[i] * (factor * slope);
    if (has_up) to.ups[i * step] = given > limit || given < -limit ? 0.0F : grad[i] * (gate * s);
  }
}

PLAIT_CLONES void make_slopes(const Activation& activation, const Inputs& from, const float* grad,
                              std::int64_t count, float* values, const Slopes& to) {
  if (from.step == 2) {
    make_slopes(activation, from, 2, true, grad, count, values, to);
  } else {
    make_slopes(activation, from, 1, from.ups != from.gates, grad, count, values, to);
  }
}

}  // namespace

float activate_back(const Activation& activation, const ActivationGradient& of,
                    const TensorView& results, const TensorView& grad_from) {
  std::array<float, kBlock> value;
  std::array<float, 2 * kBlock> slopes;
  std::array<float, kBlock> grad;
  const std::int64_t inner = results.cols;
  float sum = 0;
  for (std::int64_t begin = 0; begin < inner; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, inner - begin);
    const Inputs from = inputs_of(activation.kind, of.from, inner, begin);
    for (std::int64_t i = 0; i < count; ++i) grad[i] = of.grad[begin + i] * of.weight;
    make_slopes(activation, from, grad.data(), count, value.data(),
                {.gates = slopes.data(), .ups = slopes.data() + (from.step == 2 ? 1 : kBlock)});
    for (std::int64_t i = 0; i < count; ++i) {
      sum += of.grad[begin + i] * value[i];
      value[i] *= of.weight;
    }
    const auto write = [](const float* from_block, const TensorView& to, std::int64_t first,
                          std::int64_t number) {
      convert(from_block, Dtype::f32, to.column_range(first, first + number).data, to.dtype,
              static_cast<std::size_t>(number));
    };
    write(value.data(), results, begin, count);
    write(slopes.data(), grad_from, from.step * begin, from.step * count);
    if (activation.kind == ExpertActivation::swiglu)
      write(slopes.data() + kBlock, grad_from, inner + begin, count);
  }
  return sum;
}

void activate(const Activation& activation, const float* from, const float* weight,
              const TensorView& to) {
  std::array<float, kBlock> values;
  for (std::int64_t begin = 0; begin < to.cols; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, to.cols - begin);
    make_values(activation, inputs_of(activation.kind, from, to.cols, begin),
                weight == nullptr ? 1.0F : *weight, count, values.data());
    convert(values.data(), Dtype::f32, to.column_range(begin, begin + count).data, to.dtype,
            static_cast<std::size_t>(count));
  }
}

}  // namespace plait::experts
