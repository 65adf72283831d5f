// y = x·wᵀ + bias with a weight in its original dtype, and with the same weight in 8 bits.
#include <plait/plait.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kInputs = 512;
constexpr std::int64_t kOutputs = 384;

// Numbers from -1 to 1 that look like noise.
std::vector<float> noise(std::int64_t count, double seed) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i * i % 9973))));
  return values;
}

template <class T>
auto matrix(std::vector<T>& values, std::int64_t rows, std::int64_t cols) {
  return plait::TensorView::of(values.data(), rows, cols);
}

}  // namespace

int main() {
  std::vector<float> x = noise(kRows * kInputs, 1);
  std::vector<float> w = noise(kOutputs * kInputs, 2);
  std::vector<float> bias = noise(kOutputs, 3);
  std::vector<float> exact(kRows * kOutputs);
  std::vector<float> small(kRows * kOutputs);
  const plait::WeightView weight = {.view = matrix(w, kOutputs, kInputs),
                                    .layout = plait::WeightLayout::out_in};

  // The best backend for the product. It keeps its memory between calls.
  plait::Gemm gemm = plait::select_gemm(plait::parse_gemm("m=8 n=384 k=512 x=f32 w=f32 out=f32"));
  gemm.run({.x = {matrix(x, kRows, kInputs)},
            .weight = weight,
            .out = matrix(exact, kRows, kOutputs),
            .bias = matrix(bias, 1, kOutputs)});

  // A quarter of the bytes, packed once for all calls. The columns are computed in two windows.
  const plait::PackedWeight packed(
      plait::quantize(weight, {.bits = 8, .per = plait::QuantPer::channel}));
  plait::Gemm quantised =
      plait::select_gemm(plait::parse_gemm("m=8 n=384 k=512 x=f32 w=s8:channel out=f32"));
  const plait::TensorView out = matrix(small, kRows, kOutputs);
  for (const plait::Range columns : {plait::Range{0, 256}, plait::Range{256, kOutputs}}) {
    quantised.run({.x = {matrix(x, kRows, kInputs)},
                   .weight = packed,
                   .out = out.column_range(columns.begin, columns.end),
                   .window = {.columns = columns},
                   .bias = matrix(bias, 1, kOutputs)});
  }

  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(small[i] - exact[i], 2);
    norm += std::pow(exact[i], 2);
  }
  std::printf("%s: %zu KiB of weight; %s: %zu KiB, off by %.2f %%\n",
              std::string(gemm.backend()).c_str(), w.size() * sizeof(float) / 1024,
              std::string(quantised.backend()).c_str(), packed.bytes() / 1024,
              100 * std::sqrt(error / norm));
}
