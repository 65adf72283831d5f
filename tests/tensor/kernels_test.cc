// Compares every set of kernels that this processor can run with loops over single elements.
#include "tensor/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/float_modes.h"
#include "tensor/in_pairs.h"
#include "tensor/print.h"

namespace plait::tensor {
namespace {

constexpr std::array<Dtype, kDtypes> kAll = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8};
constexpr std::byte kUntouched{0x5a};

using Bytes = std::vector<std::byte>;

Bytes random_bits(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes all(bytes);
  for (std::byte& byte : all) byte = std::byte(random() & 0xffU);
  return all;
}

// Numbers of similar size, whose sums need rounding.
Bytes random_numbers(Dtype dtype, std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-100, 100);
  Bytes all(n * size_of(dtype));
  for (std::size_t i = 0; i < n; ++i) {
    const float value = number(random);
    convert(&value, Dtype::f32, all.data() + i * size_of(dtype), dtype, 1);
  }
  return all;
}

template <class T>
T element(const void* from, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
  return value;
}

float widened(const void* from, Dtype dtype, std::size_t i) {
  switch (dtype) {
    case Dtype::f32:
      return element<float>(from, i);
    case Dtype::bf16:
      return static_cast<float>(element<Bf16>(from, i));
    case Dtype::f16:
      return static_cast<float>(element<F16>(from, i));
    case Dtype::s8:
      return element<std::int8_t>(from, i);
  }
  return 0;
}

template <class T>
void put(Bytes& to, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(T));
}

void put_narrowed(Bytes& to, Dtype dtype, float value) {
  if (dtype == Dtype::f32) put(to, value);
  if (dtype == Dtype::bf16) put(to, Bf16(value));
  if (dtype == Dtype::f16) put(to, F16(value));
  if (dtype == Dtype::s8) {
    const double clamped = std::isnan(value) ? 0.0 : std::fmin(std::fmax(value, -128.0), 127.0);
    put(to, static_cast<std::int8_t>(std::lrint(clamped)));
  }
}

// Neighbours in pairs, level by level.
Bytes want(const std::vector<const void*>& sources, Dtype in, Dtype out, std::size_t n) {
  Bytes all;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<float> values;
    for (const void* source : sources) values.push_back(widened(source, in, i));
    add_in_pairs(values, [](float& sum, float more) { sum += more; });
    float total = values[0];
    if (sources.size() > 1 && std::isnan(total)) total = std::bit_cast<float>(0xffc00000U);
    put_narrowed(all, out, total);
  }
  return all;
}

using Fill = Bytes (*)(Dtype dtype, std::size_t n, unsigned seed);

std::vector<Bytes> some_parts(std::size_t count, Dtype dtype, std::size_t n, Fill fill) {
  std::vector<Bytes> parts(count);
  unsigned seed = 10;
  for (Bytes& part : parts) part = fill(dtype, n, seed++);
  return parts;
}

std::vector<const void*> places(const std::vector<Bytes>& parts) {
  std::vector<const void*> all(parts.size());
  std::transform(parts.begin(), parts.end(), all.begin(),
                 [](const auto& part) { return part.data(); });
  return all;
}

class KernelSet : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (const char* reason = base::refusal(GetParam()->needs)) GTEST_SKIP() << reason;
  }

  // Sums into memory that is `shift` bytes off alignment, and checks the bytes around it too.
  static void expect_sum(const std::vector<const void*>& sources, Dtype in, Dtype out,
                         std::size_t n, std::size_t shift) {
    const std::size_t bytes = n * size_of(out);
    Bytes got(bytes + shift + 64, kUntouched);
    GetParam()->sum(in, out)(got.data() + shift, sources.data(), static_cast<int>(sources.size()),
                             n);
    Bytes expected(shift, kUntouched);
    const Bytes middle = want(sources, in, out, n);
    expected.insert(expected.end(), middle.begin(), middle.end());
    expected.resize(got.size(), kUntouched);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size()), 0)
        << name(in) << " to " << name(out) << ", " << sources.size() << " sources, n " << n;
  }
};

TEST_P(KernelSet, ConvertsRandomBitsAsTheScalarsDo) {
  constexpr std::size_t kElements = 100003;
  const Bytes bits = random_bits(kElements * 4 + 1, 1);
  for (const Dtype in : kAll) {
    for (const Dtype out : kAll) expect_sum({bits.data() + 1}, in, out, kElements, 3);
  }
}

TEST_P(KernelSet, ConvertsEvery16BitPattern) {
  std::vector<std::uint16_t> bits(0x10000);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  for (const Dtype out : kAll) {
    expect_sum({bits.data()}, Dtype::bf16, out, bits.size(), 0);
    expect_sum({bits.data()}, Dtype::f16, out, bits.size(), 0);
  }
}

TEST_P(KernelSet, ConvertsAlikeInEveryModeOfTheThread) {
  constexpr std::size_t kElements = 40001;
  Bytes bits = random_bits(kElements * 4, 5);
  const Bytes near = random_numbers(Dtype::f32, kElements, 6);
  bits.insert(bits.end(), near.begin(), near.end());
  const std::size_t n = bits.size() / 4;
  for (const Dtype in : kAll) {
    for (const Dtype out : kAll) {
      const void* source = bits.data();
      const Bytes expected = want({source}, in, out, n);
      for (const auto& mode : float_modes()) {
        Bytes got(n * size_of(out));
        mode.enter();
        GetParam()->sum(in, out)(got.data(), &source, 1, n);
        mode.leave();
        ASSERT_EQ(got, expected) << name(in) << " to " << name(out) << ", " << mode.name;
      }
    }
  }
}

TEST_P(KernelSet, DoesEveryLengthAndTouchesNothingBesides) {
  const Bytes bits = random_bits(800, 2);
  for (const Dtype in : kAll) {
    for (const Dtype out : kAll) {
      for (std::size_t n = 0; n < 140; ++n) {
        expect_sum({bits.data(), bits.data() + 32}, in, out, n, n % 5);
      }
    }
  }
}

TEST_P(KernelSet, ReadsNothingBeyondItsSources) {
  // Vectors have the exact size, so that the address sanitizer notices one byte too many.
  for (const Dtype in : kAll) {
    for (const std::size_t n : {1U, 7U, 9U, 31U, 63U, 65U}) {
      const Bytes first = random_numbers(in, n, 3);
      const Bytes second = random_numbers(in, n, 4);
      Bytes out(n * 2);
      const void* sources[] = {first.data(), second.data()};
      GetParam()->sum(in, Dtype::bf16)(out.data(), sources, 2, n);
      EXPECT_EQ(out, want({first.data(), second.data()}, in, Dtype::bf16, n));
    }
  }
}

TEST_P(KernelSet, AddsSourcesInPairs) {
  constexpr std::size_t kElements = 301;
  for (const Dtype in : kAll) {
    for (std::size_t count = 1; count <= 17; ++count) {
      const auto parts = some_parts(count, in, kElements, random_numbers);
      for (const Dtype out : kAll) expect_sum(places(parts), in, out, kElements, 0);
    }
  }
}

// Random bits: numbers of all sizes, infinities and NaNs.
Bytes random_floats(Dtype dtype, std::size_t n, unsigned seed) {
  return random_bits(n * size_of(dtype), seed);
}

TEST_P(KernelSet, AddsRandomBits) {
  constexpr std::size_t kElements = 4099;
  for (const Dtype in : kAll) {
    const auto parts = some_parts(3, in, kElements, random_floats);
    for (const Dtype out : kAll) expect_sum(places(parts), in, out, kElements, 1);
  }
}

void expect_in_place(const Kernels& set, Dtype in, Dtype out, std::size_t target) {
  constexpr std::size_t kElements = 517;
  auto parts = some_parts(3, in, kElements, random_numbers);
  const auto sources = places(parts);
  const Bytes expected = want(sources, in, out, kElements);
  set.sum(in, out)(parts[target].data(), sources.data(), 3, kElements);
  ASSERT_EQ(std::memcmp(parts[target].data(), expected.data(), expected.size()), 0)
      << name(in) << " to " << name(out) << " over source " << target;
}

TEST_P(KernelSet, WritesOverAnyOneSource) {
  for (const Dtype in : kAll) {
    for (const Dtype out : kAll) {
      if (size_of(out) > size_of(in)) continue;
      for (std::size_t target = 0; target < 3; ++target) {
        expect_in_place(*GetParam(), in, out, target);
      }
    }
  }
}

void expect_streamed(const Kernels& set, std::size_t n, std::size_t shift, Fill fill) {
  auto parts = some_parts(3, Dtype::f32, n, fill);
  const auto sources = places(parts);
  const Bytes sum = want(sources, Dtype::f32, Dtype::f32, n);
  Bytes expected(shift, kUntouched);
  expected.insert(expected.end(), sum.begin(), sum.end());
  expected.resize(sum.size() + shift + 64, kUntouched);
  Bytes got(expected.size(), kUntouched);
  set.streamed_sum(got.data() + shift, parts[1].data(), sources.data(), 3, n);
  ASSERT_EQ(got, expected) << n << " elements to place " << shift;
  ASSERT_EQ(parts[1], sum) << n << " elements over a source";
}

std::vector<const Kernels*> all_sets() { return {kernel_sets().begin(), kernel_sets().end()}; }

INSTANTIATE_TEST_SUITE_P(All, KernelSet, testing::ValuesIn(all_sets()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST(Kernels, StreamTheSameSumToTwoPlaces) {
  for (const Kernels* set : kernel_sets()) {
    if (!base::may_use(set->needs) || set->streamed_sum == nullptr) continue;
    for (const std::size_t n : {1U, 15U, 16U, 79U, 80U, 500U, 1037U}) {
      // Aligned to an element of a cache line, and not aligned.
      for (const std::size_t shift : {0U, 4U, 16U, 60U, 3U}) {
        expect_streamed(*set, n, shift, random_numbers);
        expect_streamed(*set, n, shift, random_floats);
      }
    }
  }
}

TEST(Kernels, TheChosenSetIsTheFirstUsableOne) {
  EXPECT_TRUE(base::may_use(kernels().needs));
  EXPECT_EQ(kernel_sets().back(), &portable_kernels());
  for (const Kernels* set : kernel_sets()) {
    if (set == &kernels()) break;
    EXPECT_FALSE(base::may_use(set->needs)) << set->name;
  }
}

}  // namespace
}  // namespace plait::tensor
