// One operator with a weight in its original dtype, and in 8 and 4 bits: how much of it a rank
// stores and reads, and the error of the result.
//
//   plait run -n 2 -- 03_quantised
#include <plait/plait.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kTokens = 16;
constexpr std::int64_t kInputs = 1024;  // of each rank
constexpr std::int64_t kOutputs = 768;

using Per = plait::QuantPer;
constexpr std::array<plait::QuantScheme, 7> kSchemes = {{
    {.bits = 8, .per = Per::tensor},
    {.bits = 8, .per = Per::channel},
    {.bits = 8, .per = Per::group, .group = 128},
    {.bits = 4, .per = Per::channel},
    {.bits = 4, .per = Per::group, .group = 128},
    {.bits = 4, .per = Per::group, .group = 32},
    {.bits = 4, .per = Per::group, .group = 32, .offsets = true},
}};

// Sums of eight uniform numbers, which look like normally distributed noise.
std::vector<float> noise(std::int64_t count, std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = -4;
    for (int i = 0; i < 8; ++i) {
      seed = seed * 1664525U + 1013904223U;
      value += static_cast<float>(seed >> 8) / static_cast<float>(1U << 24);
    }
  }
  return values;
}

plait::TensorView matrix(std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  return plait::TensorView::of(values.data(), rows, cols);
}

// The root mean square of the error, in percent of that of `wanted`.
double distance(const std::vector<float>& got, const std::vector<float>& wanted) {
  double off = 0;
  double all = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    off += std::pow(double{got[i]} - double{wanted[i]}, 2);
    all += std::pow(double{wanted[i]}, 2);
  }
  return 100 * std::sqrt(off / all);
}

}  // namespace

int main() try {
  plait::Communicator comm = plait::Communicator::connect();
  const auto rank = static_cast<std::uint32_t>(comm.rank());
  std::vector<float> x = noise(kTokens * kInputs, 2 * rank);
  std::vector<float> w = noise(kOutputs * kInputs, 2 * rank + 1);
  std::vector<float> y(kTokens * kOutputs);
  const plait::WeightView view = {.view = matrix(w, kOutputs, kInputs),
                                  .layout = plait::WeightLayout::out_in};
  const auto multiply = [&](const plait::PackedWeight& weight) {
    plait::matmul_all_reduce(matrix(x, kTokens, kInputs), weight, matrix(y, kTokens, kOutputs),
                             comm);
  };

  const plait::PackedWeight whole(view);
  multiply(whole);
  const std::vector<float> wanted = y;
  if (rank == 0)
    std::printf("weight               of a rank    off by\nf32 %21zu KiB\n", whole.bytes() / 1024);

  for (const plait::QuantScheme& scheme : kSchemes) {
    const plait::PackedWeight small(plait::quantize(view, scheme));
    multiply(small);
    if (rank == 0)
      std::printf("%-20s %4zu KiB  %6.2f %%\n", plait::name(scheme).c_str(), small.bytes() / 1024,
                  distance(y, wanted));
  }
} catch (const plait::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
