// The tree in which a product adds up k (src/gemm/leaves.h), for every backend: against sums that
// are made leaf by leaf and added here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/instruction_set.h"
#include "base/sanitized.h"
#include "gemm/backend_test.h"
#include "gemm/leaves.h"
#include "gemm/matrix.h"
#include "gemm/quant_panels.h"
#include "plait/gemm.h"
#include "quant/weights.h"
#include "tensor/compare.h"
#include "tensor/in_pairs.h"

namespace plait {
namespace {

using gemm::Leaves;
using tensor::added_in_pairs;

using Sums = std::vector<float>;

Sums values_of(const ConstTensorView& view) {
  Sums all;
  for (std::int64_t i = 0; i < view.rows; ++i) {
    for (std::int64_t j = 0; j < view.cols; ++j) all.push_back(static_cast<float>(at(view, i, j)));
  }
  return all;
}

bool are_rounded_in(const ConstTensorView& got, const Sums& sums) {
  Matrix want(got.dtype, got.rows, got.cols);
  for (std::int64_t i = 0; i < got.rows; ++i)
    convert(sums.data() + i * got.cols, Dtype::f32, want.view.row(i), got.dtype,
            static_cast<std::size_t>(got.cols));
  return static_cast<bool>(tensor::same_bits(got, want.view));
}

class SumTree : public BackendTest {
 protected:
  // A part of k of the problem's operands, as one of `shares` equal ones.
  static Sums product(const Matrix& x, const Matrix& w, Range k, std::int64_t shares) {
    const GemmDesc desc = {.m = x.view.rows,
                           .n = w.view.rows,
                           .k = k.end - k.begin,
                           .x = x.view.dtype,
                           .weight = w.view.dtype,
                           .out = Dtype::f32,
                           .shares = shares};
    const Matrix out(Dtype::f32, desc.m, desc.n);
    select(desc).run(
        {.x = {x.view.column_range(k.begin, k.end)},
         .weight = WeightView{w.view.column_range(k.begin, k.end), WeightLayout::out_in},
         .out = out.view});
    return values_of(out.view);
  }

  // Rows that take every path: alone, few, a strip, several strips.
  static std::vector<std::int64_t> some_rows() {
    if (GetParam() == "reference") return {2};
    if (kIsSanitized) return {3, 17};
    return {1, 3, 17, 101};
  }
};

// Leaves shorter than 1024 k are one chain as products of their own.
TEST_P(SumTree, AddsLeavesInPairs) {
  int done = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const std::int64_t k : {1023, 1024, 1500, 2048, 5000}) {
      for (const std::int64_t rows : some_rows()) {
        const GemmDesc desc = {.m = rows,
                               .n = 70,
                               .k = k,
                               .x = dtype,
                               .weight = dtype,
                               .out = rows == 17 ? Dtype::bf16 : Dtype::f32};
        if (!can(desc)) continue;
        ++done;
        const Matrix x(dtype, rows, k, 1);
        const Matrix w(dtype, desc.n, k, 2);
        const Leaves leaves(gemm::Depth{.k = k});
        std::vector<Sums> parts;
        parts.reserve(static_cast<std::size_t>(leaves.count()));
        for (std::int64_t leaf = 0; leaf < leaves.count(); ++leaf)
          parts.push_back(product(x, w, {leaves.begin(leaf), leaves.begin(leaf + 1)}, 1));
        const Sums want = added_in_pairs(parts);
        const PackedWeight packed(WeightView{w.view, WeightLayout::out_in}, 1);
        for (const bool is_packed : {true, false}) {
          const Matrix out(desc.out, rows, desc.n);
          const Weight weight =
              is_packed ? Weight(packed) : Weight(WeightView{w.view, WeightLayout::out_in});
          select(desc, 2).run({.x = {x.view}, .weight = weight, .out = out.view});
          ASSERT_TRUE(are_rounded_in(out.view, want)) << name(desc);
        }
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// A leaf as every f32 kernel with fused multiply-adds sums it, element by element.
Sums chains_of(const Matrix& x, const Matrix& w, Range k) {
  Sums sums;
  for (std::int64_t i = 0; i < x.view.rows; ++i) {
    for (std::int64_t j = 0; j < w.view.rows; ++j) {
      const auto* row = static_cast<const float*>(x.view.row(i));
      const auto* column = static_cast<const float*>(w.view.row(j));
      float sum = 0;
      for (std::int64_t at = k.begin; at < k.end; ++at) sum = std::fma(row[at], column[at], sum);
      sums.push_back(sum);
    }
  }
  return sums;
}

TEST_P(SumTree, IsThatOfAPlainLoop) {
  if (GetParam() == "reference") GTEST_SKIP() << "rounds products";
#if defined(__x86_64__)
  if (!base::may_use(base::InstructionSet::avx2)) GTEST_SKIP() << "rounds products";
#endif
  const std::vector<std::vector<std::int64_t>> trees = {
      {0, 544, 1100},
      {0, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096},
      {0, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216, 10240, 11264, 12288, 13312, 14336,
       15360, 16384}};
  for (const std::vector<std::int64_t>& edges : trees) {
    const GemmDesc desc = {.m = 7,
                           .n = 5,
                           .k = edges.back(),
                           .x = Dtype::f32,
                           .weight = Dtype::f32,
                           .out = Dtype::f32};
    if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
    const Matrix x(Dtype::f32, desc.m, desc.k, 1);
    const Matrix w(Dtype::f32, desc.n, desc.k, 2);
    std::vector<Sums> parts;
    for (std::size_t leaf = 1; leaf < edges.size(); ++leaf)
      parts.push_back(chains_of(x, w, {edges[leaf - 1], edges[leaf]}));
    const Matrix out(Dtype::f32, desc.m, desc.n);
    select(desc).run(
        {.x = {x.view}, .weight = WeightView{w.view, WeightLayout::out_in}, .out = out.view});
    ASSERT_TRUE(are_rounded_in(out.view, added_in_pairs(parts))) << name(desc);
  }
}

TEST_P(SumTree, OfEqualSharesIsThatOfTheWhole) {
  int done = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const std::int64_t k : {2048, 4096, 5632, 16384}) {
      if (kIsSanitized && k > 5632) continue;  // instrumented products are slow
      for (const std::int64_t shares : {2, 4, 8, 16}) {
        GemmDesc desc = {.m = GetParam() == "reference" ? 1 : 19,
                         .n = 66,
                         .k = k / shares,
                         .x = dtype,
                         .weight = dtype,
                         .out = Dtype::f32,
                         .shares = shares};
        if (!can(desc) || !sum_tree(desc)) continue;
        ++done;
        const Matrix x(dtype, desc.m, k, 1);
        const Matrix w(dtype, desc.n, k, 2);
        std::vector<Sums> parts;
        parts.reserve(static_cast<std::size_t>(shares));
        for (std::int64_t share = 0; share < shares; ++share)
          parts.push_back(product(x, w, {share * desc.k, (share + 1) * desc.k}, shares));
        ASSERT_EQ(added_in_pairs(parts), product(x, w, {0, k}, 1)) << name(desc);
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// Puts infinities and NaNs with other bits among the elements.
void spoil(const Matrix& matrix) {
  constexpr std::uint32_t kSpecial[] = {0x7f800000U, 0xff800000U, 0x7fc20000U, 0xffe40000U};
  std::mt19937 random(3);
  for (std::int64_t i = 0; i < matrix.view.rows; ++i) {
    auto* row = static_cast<std::byte*>(matrix.view.row(i));
    for (std::int64_t j = 0; j < matrix.view.cols; ++j) {
      if (random() % 500 != 0) continue;
      const auto value = std::bit_cast<float>(kSpecial[random() % 4]);
      const std::int64_t at = j * static_cast<std::int64_t>(size_of(matrix.view.dtype));
      convert(&value, Dtype::f32, row + at, matrix.view.dtype, 1);
    }
  }
}

// The bits of the elements that are NaNs, as f32.
std::vector<std::uint32_t> nans_of(const ConstTensorView& view) {
  std::vector<std::uint32_t> all;
  std::vector<float> row(static_cast<std::size_t>(view.cols));
  for (std::int64_t i = 0; i < view.rows; ++i) {
    convert(view.row(i), view.dtype, row.data(), Dtype::f32, row.size());
    for (const float value : row) {
      if (std::isnan(value)) all.push_back(std::bit_cast<std::uint32_t>(value));
    }
  }
  return all;
}

// Other loops multiply and add up one row than several, and whole panels. k: one leaf, and several.
TEST_P(SumTree, HasOneNotANumber) {
  int done = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const auto& [k, out] : {std::pair{512, Dtype::f32}, std::pair{512, Dtype::f16},
                                 std::pair{2048, Dtype::f32}, std::pair{2048, Dtype::bf16}}) {
      const bool is_slow = GetParam() == "reference";
      const GemmDesc desc = {.m = is_slow ? 3 : 40,
                             .n = is_slow ? 9 : 130,
                             .k = k,
                             .x = dtype,
                             .weight = dtype,
                             .out = out};
      if (!can(desc)) continue;
      ++done;
      const Matrix x(dtype, desc.m, desc.k, 1);
      spoil(x);
      const Matrix w(dtype, desc.n, desc.k, 2);
      const WeightView weight = {w.view, WeightLayout::out_in};
      const Matrix whole(out, desc.m, desc.n);
      select(desc).run({.x = {x.view}, .weight = weight, .out = whole.view});
      const std::vector<std::uint32_t> nans = nans_of(whole.view);
      EXPECT_FALSE(nans.empty());
      for (const std::uint32_t bits : nans) ASSERT_EQ(bits, 0xffc00000U) << name(desc);
      Gemm gemm = select(desc);
      for (std::int64_t row = 0; row < desc.m; ++row) {
        const Matrix alone(out, 1, desc.n);
        gemm.run({.x = {x.view},
                  .weight = weight,
                  .out = alone.view,
                  .window = {.rows = {row, row + 1}, .columns = {0, desc.n}}});
        ASSERT_TRUE(tensor::same_bits(alone.view, whole.view.row_range(row, row + 1)))
            << name(desc) << " row " << row;
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// Some k of a quantised weight, which begin and end with groups.
QuantizedWeight part_of(const QuantizedWeight& whole, Range k) {
  const QuantScheme& scheme = whole.scheme();
  QuantizedParts parts = parts_of(whole);
  const std::int64_t values_a_byte = 8 / scheme.bits;
  parts.values = parts.values.column_range(k.begin / values_a_byte, k.end / values_a_byte);
  if (scheme.per == QuantPer::group) {
    const Range groups = {k.begin / scheme.group, k.end / scheme.group};
    parts.scales = parts.scales.row_range(groups.begin, groups.end);
    if (scheme.offsets) parts.offsets = parts.offsets.row_range(groups.begin, groups.end);
  }
  return QuantizedWeight::from_parts(scheme, whole.n(), k.end - k.begin, parts);
}

// Shares of one quantised weight: scales per group, per channel and per tensor, few rows and many.
TEST_P(SumTree, OfSharesOfAQuantisedWeightIsThatOfTheWhole) {
  int done = 0;
  constexpr std::int64_t kDepth = 4096;
  constexpr std::int64_t kShares = 4;
  constexpr std::int64_t kPart = kDepth / kShares;
  for (const char* text : {"s8", "s8:tensor", "s4:channel:offsets", "s4:group=128",
                           "s8:group=64:offsets", "s8:group=512"}) {
    const QuantScheme scheme = *parse_quant_scheme(text);
    const Matrix plain(Dtype::f32, 70, kDepth, 5);
    const QuantizedWeight whole = quantize({plain.view, WeightLayout::out_in}, scheme);
    for (const std::int64_t rows : some_rows()) {
      const GemmDesc desc = {.m = rows, .n = 70, .k = kDepth, .out = Dtype::f32, .quant = scheme};
      if (!can(desc)) continue;
      ++done;
      const Matrix x(desc.x, rows, kDepth, 6);
      const Matrix want(Dtype::f32, rows, desc.n);
      const PackedWeight packed(whole);
      select(desc).run({.x = {x.view}, .weight = packed, .out = want.view});
      std::vector<Sums> parts;
      for (std::int64_t share = 0; share < kShares; ++share) {
        GemmDesc part = desc;
        part.k = kPart;
        part.shares = kShares;
        ASSERT_TRUE(sum_tree(part));
        const QuantizedWeight some = part_of(whole, {share * kPart, (share + 1) * kPart});
        const PackedWeight packed_part(some);
        const Matrix out(Dtype::f32, rows, desc.n);
        select(part).run({.x = {x.view.column_range(share * kPart, (share + 1) * kPart)},
                          .weight = packed_part,
                          .out = out.view});
        parts.push_back(values_of(out.view));
      }
      ASSERT_EQ(added_in_pairs(parts), values_of(want.view)) << name(desc);
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Backends, SumTree, all_backends(), name_of);

}  // namespace
}  // namespace plait
