#include "experts/activation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace plait::experts {
namespace {

// The exp() of the least value is no denormal number yet, and that of the largest is infinite.
constexpr float kLeast = -87.0F;
constexpr float kMost = 89.0F;

// exp(z) = 2^n * exp(r), with |r| <= ln(2) / 2. Taylor's series up to r^7 leaves less than
// 0.3466^8 / 8! = 5.2e-9 of exp(r), a tenth of what rounding to f32 does.
float exp_of(float z) {
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

float sigmoid(float z) { return 1.0F / (1.0F + exp_of(-z)); }

float swiglu(float gate, float up) { return gate * sigmoid(gate) * up; }

float clamped(const Activation& activation, float gate, float up) {
  gate = gate > activation.limit ? activation.limit : gate;
  up = up > activation.limit ? activation.limit : up;
  up = up < -activation.limit ? -activation.limit : up;
  return gate * sigmoid(activation.alpha * gate) * (up + 1.0F);
}

// A result, and the slopes by the gate and by the other input.
struct Slopes {
  float value;
  float gate;
  float up;
};

Slopes slopes_of(const Activation& activation, float gate, float up) {
  if (activation.kind == ExpertActivation::silu) {
    const float s = sigmoid(gate);
    return {gate * s, s + gate * s * (1.0F - s), 0.0F};
  }
  if (activation.kind == ExpertActivation::swiglu) {
    const float s = sigmoid(gate);
    return {gate * s * up, up * (s + gate * s * (1.0F - s)), gate * s};
  }
  const float least = gate > activation.limit ? activation.limit : gate;
  float other = up > activation.limit ? activation.limit : up;
  other = other < -activation.limit ? -activation.limit : other;
  const float s = sigmoid(activation.alpha * least);
  const float slope = s + activation.alpha * least * s * (1.0F - s);
  return {least * s * (other + 1.0F), gate > activation.limit ? 0.0F : (other + 1.0F) * slope,
          other != up ? 0.0F : least * s};
}

}  // namespace

float activate_back(const Activation& activation, const ActivationGradient& of,
                    const TensorView& results, const TensorView& grad_from) {
  constexpr std::int64_t kBlock = 128;
  std::array<float, kBlock> value;
  std::array<float, 2 * kBlock> slopes;
  const std::int64_t inner = results.cols;
  const bool is_interleaved = activation.kind == ExpertActivation::swiglu_interleaved;
  const bool has_two = activation.kind != ExpertActivation::silu;
  float sum = 0;
  for (std::int64_t begin = 0; begin < inner; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, inner - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t gate = is_interleaved ? 2 * (begin + i) : begin + i;
      const std::int64_t up = is_interleaved ? gate + 1 : gate + inner;
      const Slopes its = slopes_of(activation, of.from[gate], has_two ? of.from[up] : 0.0F);
      const float grad = of.grad[begin + i];
      sum += grad * its.value;
      value[static_cast<std::size_t>(i)] = its.value * of.weight;
      slopes[static_cast<std::size_t>(is_interleaved ? 2 * i : i)] = grad * of.weight * its.gate;
      if (has_two) {
        slopes[static_cast<std::size_t>(is_interleaved ? 2 * i + 1 : kBlock + i)] =
            grad * of.weight * its.up;
      }
    }
    const auto write = [&](const float* from, const TensorView& to, std::int64_t first,
                           std::int64_t number) {
      convert(from, Dtype::f32, to.column_range(first, first + number).data, to.dtype,
              static_cast<std::size_t>(number));
    };
    write(value.data(), results, begin, count);
    if (is_interleaved) {
      write(slopes.data(), grad_from, 2 * begin, 2 * count);
    } else {
      write(slopes.data(), grad_from, begin, count);
      if (has_two) write(slopes.data() + kBlock, grad_from, inner + begin, count);
    }
  }
  return sum;
}

void activate(const Activation& activation, const float* from, const float* weight,
              const TensorView& to) {
  constexpr std::int64_t kBlock = 256;
  std::array<float, kBlock> values;
  for (std::int64_t begin = 0; begin < to.cols; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, to.cols - begin);
    float* const value = values.data();
    switch (activation.kind) {
      case ExpertActivation::swiglu: {
        const float* const gate = from + begin;
        const float* const up = gate + to.cols;
        for (std::int64_t i = 0; i < count; ++i) value[i] = swiglu(gate[i], up[i]);
        break;
      }
      case ExpertActivation::swiglu_interleaved: {
        const float* const pairs = from + 2 * begin;
        for (std::int64_t i = 0; i < count; ++i)
          value[i] = clamped(activation, pairs[2 * i], pairs[2 * i + 1]);
        break;
      }
      case ExpertActivation::silu:
        for (std::int64_t i = 0; i < count; ++i)
          value[i] = from[begin + i] * sigmoid(from[begin + i]);
        break;
    }
    if (weight != nullptr) {
      for (std::int64_t i = 0; i < count; ++i) value[i] *= *weight;
    }
    convert(value, Dtype::f32, to.column_range(begin, begin + count).data, to.dtype,
            static_cast<std::size_t>(count));
  }
}

}  // namespace plait::experts
