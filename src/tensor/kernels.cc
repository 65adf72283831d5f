#include "tensor/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace plait::tensor {
namespace {

// The pointers need no alignment, so memcpy reads the value.
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

// Comparisons are used, because lrint() and similar functions obey the thread's rounding mode.
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

// Sums blocks in f32 that stay in the L1 cache, in plain loops that the compiler vectorises.
template <Element In, Element Out>
void sum(void* out, const void* const* sources, int count, std::size_t n) {
  constexpr std::size_t kBlock = 256;
  std::array<float, kBlock> total;  // NOLINT(*-member-init): written before it is read
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t block = std::min(kBlock, n - begin);
    for (std::size_t i = 0; i < block; ++i) total[i] = load<In>(sources[0], begin + i);
    for (int s = 1; s < count; ++s) {
      for (std::size_t i = 0; i < block; ++i) total[i] += load<In>(sources[s], begin + i);
    }
    for (std::size_t i = 0; i < block && count > 1; ++i) {
      total[i] = total[i] == total[i] ? total[i] : std::bit_cast<float>(kNan);
    }
    std::byte* to = static_cast<std::byte*>(out) + begin * sizeof(Out);
    for (std::size_t i = 0; i < block; ++i) {
      const Out result = rounded<Out>(total[i]);
      std::memcpy(to + i * sizeof(Out), &result, sizeof(Out));
    }
  }
}

template <Element In>
constexpr std::array<Sum, kDtypes> kRow = {sum<In, float>, sum<In, Bf16>, sum<In, F16>,
                                           sum<In, std::int8_t>};

constexpr Kernels kSet = {.name = "portable",
                          .needs = base::InstructionSet::sse2,
                          .sums = {kRow<float>, kRow<Bf16>, kRow<F16>, kRow<std::int8_t>}};

}  // namespace

const Kernels& portable_kernels() { return kSet; }

const Kernels& kernels() {
  for (const Kernels* set : kernel_sets()) {
    if (base::may_use(set->needs)) return *set;
  }
  return kSet;
}

}  // namespace plait::tensor
