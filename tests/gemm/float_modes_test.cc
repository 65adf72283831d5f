// Products don't depend on how the caller's thread rounds and treats denormals, nor on how the
// threads of a team do, which are as the thread was that made them.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gemm/backend_test.h"
#include "gemm/matrix.h"
#include "plait/gemm.h"
#include "tensor/compare.h"
#include "tensor/float_modes.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 70;
constexpr std::int64_t kDepth = 50;

// Thirds, some of them small enough for products that are denormal.
void fill_thirds(const TensorView& view) {
  for (std::int64_t i = 0; i < view.rows; ++i) {
    for (std::int64_t j = 0; j < view.cols; ++j) {
      const std::int64_t at = i * view.cols + j;
      const float value = static_cast<float>(at % 7 + 1) / 3 * (at % 5 == 0 ? 0x1p-70F : 1);
      convert(&value, Dtype::f32, view.column_range(j, j + 1).row(i), view.dtype, 1);
    }
  }
}

// Made before any mode is entered.
struct Operands {
  explicit Operands(const GemmDesc& description)
      : desc(description),
        x(desc.x, desc.m, desc.k),
        w(desc.quant ? Dtype::f32 : desc.weight, desc.n, desc.k),
        bias(Dtype::f32, 1, desc.n) {
    for (const Matrix* matrix : {&x, &w, &bias}) fill_thirds(matrix->view);
    if (desc.quant) quantised = quantize(weight(), *desc.quant);
  }
  WeightView weight() const { return {.view = w.view, .layout = WeightLayout::out_in}; }

  GemmDesc desc;
  Matrix x;
  Matrix w;
  Matrix bias;
  std::optional<QuantizedWeight> quantised;
};

// All that a caller does, in its own mode.
Matrix product(const Operands& operands, const GemmOptions& options) {
  const GemmDesc& desc = operands.desc;
  Matrix y(desc.out, desc.m, desc.n);
  Gemm gemm = select_gemm(desc, options);
  const PackedWeight packed = operands.quantised
                                  ? PackedWeight(*operands.quantised, options.threads)
                                  : PackedWeight(operands.weight(), options.threads);
  PackedInput ready;
  gemm.pack({operands.x.view}, ready);
  gemm.run({.x = {operands.x.view},
            .weight = packed,
            .out = y.view,
            .bias = operands.bias.view,
            .packed_x = &ready});
  return y;
}

// OpenMP keeps a pool of threads for each thread that asks for a team, and they stay in the mode in
// which they were made; plait's own teams come from the same pool.
void make_pool(int threads) {
#pragma omp parallel num_threads(threads) default(none)
  (void)omp_get_thread_num();
}

std::vector<GemmDesc> descs() {
  const GemmDesc floats = {.m = kRows,
                           .n = kColumns,
                           .k = kDepth,
                           .x = Dtype::f32,
                           .weight = Dtype::f32,
                           .out = Dtype::f32};
  std::vector<GemmDesc> all(4, floats);
  all[1].x = all[1].weight = Dtype::bf16;
  all[2].quant = parse_quant_scheme("s8:group=16");
  all[3].x = Dtype::bf16;
  all[3].out = Dtype::bf16;
  all[3].quant = parse_quant_scheme("s4:offsets");
  return all;
}

class FloatModes : public testing::TestWithParam<std::string> {};

TEST_P(FloatModes, OfTheCallerChangeNoBit) {
  int done = 0;
  for (const GemmDesc& desc : descs()) {
    if (!backend_can(GetParam(), desc)) continue;
    ++done;
    const Operands operands(desc);
    const Matrix usual = product(operands, {.backend = GetParam(), .threads = 1});
    for (const int threads : {1, 2}) {
      for (const FloatMode& mode : float_modes()) {
        Matrix y(desc.out, desc.m, desc.n);
        // A new thread has no pool yet.
        std::thread caller([&] {
          mode.enter();
          make_pool(threads);
          y = product(operands, {.backend = GetParam(), .threads = threads});
          mode.leave();
        });
        caller.join();
        EXPECT_TRUE(tensor::same_bits(y.view, usual.view))
            << name(desc) << " on " << threads << " threads, " << mode.name;
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Backends, FloatModes, all_backends(), name_of);

}  // namespace
}  // namespace plait
