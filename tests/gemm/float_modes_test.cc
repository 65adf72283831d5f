// Products don't depend on how the caller's thread rounds and treats denormals, which the threads
// of a team would not share.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/gemm.h"
#include "tensor/float_modes.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 70;
constexpr std::int64_t kDepth = 50;

// Thirds, some of them small enough for products that are denormal.
std::vector<float> thirds(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(i % 7 + 1) / 3 * (i % 5 == 0 ? 0x1p-70F : 1));
  return values;
}

TensorView view_of(std::vector<float>& values, std::int64_t cols) {
  const auto rows = static_cast<std::int64_t>(values.size()) / cols;
  return {
      .data = values.data(), .dtype = Dtype::f32, .rows = rows, .cols = cols, .row_stride = cols};
}

// Made before any mode is entered.
struct Operands {
  std::vector<float> x = thirds(kRows * kDepth);
  std::vector<float> w = thirds(kColumns * kDepth);
  std::vector<float> bias = thirds(kColumns);
};

std::vector<float> product(const std::string& backend, int threads, Operands& operands) {
  std::vector<float> y(kRows * kColumns);
  select_gemm({.m = kRows,
               .n = kColumns,
               .k = kDepth,
               .x = Dtype::f32,
               .weight = Dtype::f32,
               .out = Dtype::f32},
              {.backend = backend, .threads = threads})
      .run({.x = {view_of(operands.x, kDepth)},
            .weight = WeightView{view_of(operands.w, kDepth), WeightLayout::out_in},
            .out = view_of(y, kColumns),
            .bias = view_of(operands.bias, kColumns)});
  return y;
}

TEST(FloatModes, OfTheCallerChangeNoBit) {
  Operands operands;
  for (const std::string backend : {"vector", "reference"}) {
    for (const int threads : {1, 2}) {
      const std::vector<float> usual = product(backend, threads, operands);
      for (const FloatMode& mode : float_modes()) {
        mode.enter();
        const std::vector<float> y = product(backend, threads, operands);
        mode.leave();
        EXPECT_EQ(std::memcmp(y.data(), usual.data(), y.size() * sizeof(float)), 0)
            << backend << " on " << threads << " threads, " << mode.name;
      }
    }
  }
}

}  // namespace
}  // namespace plait
