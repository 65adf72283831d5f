#include "tensor/kernels.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "tensor/coded_rows.h"

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

constexpr std::size_t kBlock = 256;
using Block = std::array<float, kBlock>;

// Plain loops, which the compiler vectorises.
template <Element In>
void add_up(Block& total, const void* const* sources, int count, std::size_t begin, std::size_t n) {
  if (count == 1) {
    for (std::size_t i = 0; i < n; ++i) total[i] = load<In>(sources[0], begin + i);
    return;
  }
  const int first = first_in_tree(count);
  Block others;  // NOLINT(*-member-init): written before it is read
  add_up<In>(total, sources, first, begin, n);
  add_up<In>(others, sources + first, count - first, begin, n);
  for (std::size_t i = 0; i < n; ++i) total[i] += others[i];
}

// Sums blocks in f32 that stay in the L1 cache.
template <Element In, Element Out>
void sum(void* out, const void* const* sources, int count, std::size_t n) {
  Block total;  // NOLINT(*-member-init): written before it is read
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t block = std::min(kBlock, n - begin);
    add_up<In>(total, sources, count, begin, block);
    for (std::size_t i = 0; i < block && count > 1; ++i) {
      total[i] = with_one_nan(total[i]);
    }
    std::byte* to = static_cast<std::byte*>(out) + begin * sizeof(Out);
    for (std::size_t i = 0; i < block; ++i) {
      const Out result = rounded<Out>(total[i]);
      std::memcpy(to + i * sizeof(Out), &result, sizeof(Out));
    }
  }
}

// Adding it leaves a whole number in the low bits, rounded to nearest. It holds for magnitudes up
// to 2^22, in the default rounding mode.
constexpr float kWhole = 0x1.8p23F;

void encode_group(std::byte* codes, std::byte* scale, const float* from, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffU);
  const Bf16 rounded = scale_of(largest);
  std::memcpy(scale, &rounded, sizeof(rounded));
  const float inverse = inverse_of(rounded);
  if (inverse == 0) {
    std::memset(codes, 0, n);
    return;
  }
  for (std::size_t i = 0; i < n; ++i)
    codes[i] = static_cast<std::byte>(std::bit_cast<std::uint32_t>(from[i] * inverse + kWhole));
}

void encode(const Coded& to, const float* from, std::size_t n) {
  constexpr auto kGroup = static_cast<std::size_t>(kScaleGroup);
  for (std::size_t i = 0; i < n; i += kGroup) {
    encode_group(to.codes + i, to.scales + i / kGroup * sizeof(Bf16), from + i,
                 std::min(kGroup, n - i));
  }
}

void decode(float* to, const std::byte* codes, const std::byte* scales, std::size_t n) {
  constexpr auto kGroup = static_cast<std::size_t>(kScaleGroup);
  for (std::size_t begin = 0; begin < n; begin += kGroup) {
    const float scale = load<Bf16>(scales, begin / kGroup);
    const std::size_t end = std::min(n, begin + kGroup);
    for (std::size_t i = begin; i < end; ++i)
      to[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
  }
}

template <Element In>
constexpr std::array<Sum, kDtypes> kRow = {sum<In, float>, sum<In, Bf16>, sum<In, F16>,
                                           sum<In, std::int8_t>};

constexpr Kernels kSet = {.name = "portable",
                          .needs = base::InstructionSet::basic,
                          .sums = {kRow<float>, kRow<Bf16>, kRow<F16>, kRow<std::int8_t>},
                          .encode = encode,
                          .decode = decode};

}  // namespace

const Kernels& portable_kernels() { return kSet; }

const Kernels& kernels() {
  for (const Kernels* set : kernel_sets()) {
    if (base::may_use(set->needs)) return *set;
  }
  return kSet;
}

}  // namespace plait::tensor
