// A kernel beside operands that it can take, for the tests of what every TileKernel promises.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gemm/kernel.h"
#include "gemm/kernels.h"

namespace plait::gemm {

using Sums = std::vector<float>;  // [rows][64]

struct Interval {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

class KernelTest : public testing::TestWithParam<Maker> {
 protected:
  static constexpr std::int64_t kDepth = 288;

  void SetUp() override {
    if (const char* reason = GetParam().refusal()) GTEST_SKIP() << reason;
    kernel_ = GetParam().create();
    kernel_->begin();
    fill(1);
  }
  void TearDown() override {
    if (kernel_) kernel_->end();
  }

  std::int64_t max_rows() const { return kernel_->max_rows(); }

  // Values that the operand holds exactly, of many sizes, so that every order of adding them up
  // has bits of its own.
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1, 1);
    std::uniform_int_distribution<int> exponent(-6, 6);
    const auto next = [&] {
      const float some = std::ldexp(value(random), exponent(random));
      return kernel_->operand() == Dtype::bf16 ? static_cast<float>(Bf16(some)) : some;
    };
    x_.resize(static_cast<std::size_t>(max_rows() * kDepth));
    w_.resize(static_cast<std::size_t>(kPanelColumns * kDepth));
    std::generate(x_.begin(), x_.end(), next);
    std::generate(w_.begin(), w_.end(), next);
  }

  std::int64_t bytes_of(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(size_of(kernel_->operand()));
  }

  float& x(std::int64_t row, std::int64_t k) {
    return x_[static_cast<std::size_t>(row * kDepth + k)];
  }
  float& w(std::int64_t k, std::int64_t col) {
    return w_[static_cast<std::size_t>(k * kPanelColumns + col)];
  }

  void put(std::byte* to, float value) const {
    convert(&value, Dtype::f32, to, kernel_->operand(), 1);
  }

  // The offset in packed row `row` of its element k of `depth`, in bytes; see RowForm.
  std::int64_t offset_in_rows(std::int64_t row, std::int64_t k, std::int64_t depth) const {
    if (kernel_->row_form() == RowForm::plain) return row * row_stride(depth) + bytes_of(k);
    const std::int64_t place = k / kKStep * 16 + row % 16;
    return row / 16 * row_stride(depth) + bytes_of(place * kKStep + k % kKStep);
  }

  // Plain rows begin wherever an element may, tiles at a cache line.
  std::int64_t row_stride(std::int64_t depth) const {
    if (kernel_->row_form() == RowForm::plain) return bytes_of(depth + 3);
    return bytes_of(16 * depth) + 64;
  }

  std::unique_ptr<Fenced> packed_rows(Interval rows, Interval k) {
    const std::int64_t bytes =
        offset_in_rows(rows.size() - 1, k.size() - 1, k.size()) + bytes_of(1);
    auto packed = std::make_unique<Fenced>(static_cast<std::size_t>(bytes));
    std::fill_n(packed->data(), bytes, std::byte{0xff});  // not a number, between the rows
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      for (std::int64_t i = 0; i < k.size(); ++i)
        put(packed->data() + offset_in_rows(row, i, k.size()), x(rows.begin + row, k.begin + i));
    }
    return packed;
  }

  std::unique_ptr<Fenced> packed_panel(Interval k) {
    const std::int64_t together = kernel_->operand() == Dtype::bf16 ? 2 : 1;
    auto panel =
        std::make_unique<Fenced>(static_cast<std::size_t>(bytes_of(k.size() * kPanelColumns)));
    for (std::int64_t i = 0; i < k.size(); ++i) {
      for (std::int64_t col = 0; col < kPanelColumns; ++col) {
        const std::int64_t at = (i / together * kPanelColumns + col) * together + i % together;
        put(panel->data() + bytes_of(at), w(k.begin + i, col));
      }
    }
    return panel;
  }

  // The first call of operands that are packed, with all rows that one takes.
  TileCall call_of(const Fenced& rows, const Fenced& panel, Interval k, float* sums) const {
    return {.rows = rows.data(),
            .row_stride = row_stride(k.size()),
            .panel = panel.data(),
            .k = k.size(),
            .sums = sums,
            .row_count = static_cast<int>(max_rows()),
            .first = true};
  }

  void multiply(Interval rows, Interval k, float* sums, bool first, const TileOut& out = {},
                const Nodes& nodes = {}) {
    const auto packed = packed_rows(rows, k);
    const auto panel = packed_panel(k);
    TileCall call = call_of(*packed, *panel, k, sums);
    call.row_count = static_cast<int>(rows.size());
    call.first = first;
    call.nodes = nodes;
    call.out = out;
    kernel_->multiply(call);
  }

  // In one call for each range of k, all of them in order.
  Sums product(Interval rows, const std::vector<Interval>& cuts = {{0, kDepth}}) {
    const auto elements = static_cast<std::size_t>(rows.size() * kPanelColumns);
    const Fenced place(elements * sizeof(float));
    auto* sums = reinterpret_cast<float*>(place.data());
    std::fill_n(sums, elements, std::numeric_limits<float>::quiet_NaN());
    for (const Interval& k : cuts) multiply(rows, k, sums, k.begin == 0);
    return {sums, sums + elements};
  }

  // The sums of each row when it is multiplied alone.
  Sums one_by_one() {
    Sums all;
    for (std::int64_t row = 0; row < max_rows(); ++row) {
      const Sums one = product({row, row + 1});
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  std::unique_ptr<TileKernel> kernel_;
  std::vector<float> x_;
  std::vector<float> w_;
};

inline bool same_bits(const Sums& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

}  // namespace plait::gemm
