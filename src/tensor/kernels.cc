#include "tensor/kernels.h"

#include <cstdint>
#include <cstring>

namespace plait::tensor {
namespace {

constexpr std::uint32_t kNan = 0xffc00000U;

// memcpy, because the pointers need no alignment.
template <Element T>
float load(const void* source, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(source) + i * sizeof(T), sizeof(T));
  return static_cast<float>(value);
}

template <Element T>
T rounded(float value) {
  return T(value);
}

// By comparisons, because lrint() and its like obey the thread's rounding mode.
template <>
std::int8_t rounded(float value) {
  if (!(value == value)) return 0;
  if (value <= -128) return -128;
  if (value >= 127) return 127;
  const int whole = static_cast<int>(value);
  const float rest = value - static_cast<float>(whole);  // exact
  const bool odd = (whole & 1) != 0;
  const int up = rest > 0.5F || (rest == 0.5F && odd) ? 1 : 0;
  const int down = rest < -0.5F || (rest == -0.5F && odd) ? 1 : 0;
  return static_cast<std::int8_t>(whole + up - down);
}

template <Element In, Element Out>
void sum(void* out, const void* const* sources, int count, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    float total = load<In>(sources[0], i);
    for (int s = 1; s < count; ++s) total += load<In>(sources[s], i);
    if (count > 1 && total != total) total = std::bit_cast<float>(kNan);
    const Out result = rounded<Out>(total);
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(Out), &result, sizeof(Out));
  }
}

template <Element In>
constexpr std::array<Sum, kDtypes> kRow = {sum<In, float>, sum<In, Bf16>, sum<In, F16>,
                                           sum<In, std::int8_t>};

constexpr Kernels kSet = {.name = "portable",
                          .usable = [] { return true; },
                          .sums = {kRow<float>, kRow<Bf16>, kRow<F16>, kRow<std::int8_t>}};

}  // namespace

const Kernels& portable_kernels() { return kSet; }

const Kernels& kernels() {
  for (const Kernels* set : kernel_sets()) {
    if (set->usable()) return *set;
  }
  return kSet;
}

}  // namespace plait::tensor
