// Products with quantised weights (plait/gemm.h), for every backend that this machine has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gemm/backend_test.h"
#include "gemm/depth.h"
#include "gemm/leaves.h"
#include "gemm/loops.h"
#include "gemm/matrix.h"
#include "gemm/quant_panels.h"
#include "gemm/quant_problem.h"
#include "plait/gemm.h"
#include "quant/format.h"
#include "quant/weights.h"
#include "tensor/compare.h"
#include "tensor/sentence_of.h"
#include "tensor/tolerance.h"

namespace plait {
namespace {

class QuantProducts : public BackendTest {
 protected:
  QuantProducts() : BackendTest(3) {}

  void SetUp() override {
    // Small problems are enough for the reference, which takes its time under a sanitizer.
    share_ = GetParam() == "reference" ? 4 : 1;
  }
  // One of every kind of scheme, groups of any size.
  QuantScheme scheme() {
    const std::vector<std::int64_t> groups = {1 + below(70), 32, 64, 128, 1 + below(700)};
    const auto group =
        groups[static_cast<std::size_t>(below(static_cast<std::int64_t>(groups.size())))];
    const auto all = all_schemes(group);
    return all[static_cast<std::size_t>(below(static_cast<std::int64_t>(all.size())))];
  }
  // Mostly of few rows.
  GemmDesc random_desc(Dtype x, Dtype out) {
    return {.m = 1 + below(below(2) == 0 ? 20 : 140 / share_),
            .n = 1 + below(200 / share_),
            .k = 1 + below(below(5) == 0 ? 4500 / share_ : 900 / share_),
            .x = x,
            .out = out,
            .quant = scheme()};
  }

  // Sums of the same backend's own products, one for each group, put together as the header says.
  Matrix composed(const QuantProblem& p) const {
    const gemm::Leaves leaves(p.depth);
    const Matrix numbers = p.whole_numbers();
    std::vector<Matrix> nodes;
    nodes.reserve(static_cast<std::size_t>(leaves.count()));
    for (std::int64_t leaf = 0; leaf < leaves.count(); ++leaf)
      nodes.push_back(composed_leaf(p, numbers, {leaves.begin(leaf), leaves.begin(leaf + 1)}));
    for (std::size_t step = 1; step < nodes.size(); step *= 2) {
      for (std::size_t node = 0; node < nodes.size(); node += 2 * step)
        add(nodes[node + step].view, nodes[node].view);
    }
    Matrix out(p.desc.out, p.desc.m, p.desc.n);
    for (std::int64_t i = 0; i < p.desc.m; ++i) {
      gemm::portable_loops().finish({.scales = nullptr,
                                     .bias = static_cast<const float*>(p.bias.view.row(0)),
                                     .accumulate = false},
                                    static_cast<const float*>(nodes[0].view.row(i)),
                                    out.view.row_range(i, i + 1));
    }
    return out;
  }

  static void add(const TensorView& from, const TensorView& to) {
    for (std::int64_t i = 0; i < to.rows; ++i) {
      for (std::int64_t j = 0; j < to.cols; ++j)
        static_cast<float*>(to.row(i))[j] += static_cast<const float*>(from.row(i))[j];
    }
  }

  Matrix composed_leaf(const QuantProblem& p, const Matrix& numbers, Range ks) const {
    const std::int64_t padded = gemm::round_up(p.desc.n, gemm::kPanelColumns);
    Matrix sums(Dtype::f32, p.desc.m, padded);
    for (std::int64_t i = 0; i < p.desc.m; ++i)
      std::fill_n(static_cast<float*>(sums.view.row(i)), padded, 0.0F);
    const bool grouped = p.depth.group != 0;
    for (std::int64_t begin = ks.begin; begin < ks.end;) {
      const Range k = {begin, grouped ? std::min(ks.end, begin + p.depth.group_size()) : ks.end};
      begin = k.end;
      const Matrix part(Dtype::f32, p.desc.m, padded);
      GemmDesc desc = {.m = p.desc.m,
                       .n = p.desc.n,
                       .k = k.end - k.begin,
                       .x = p.desc.x,
                       .weight = numbers.view.dtype,
                       .out = Dtype::f32};
      select(desc).run(
          {.x = {p.x.view.column_range(k.begin, k.end)},
           .weight = WeightView{numbers.view.column_range(k.begin, k.end), WeightLayout::out_in},
           .out = part.view.column_range(0, p.desc.n)});
      for (std::int64_t i = 0; i < p.desc.m; ++i) {
        for (std::int64_t j = 0; j < p.desc.n; ++j) {
          float& sum = static_cast<float*>(sums.view.row(i))[j];
          const float one = static_cast<const float*>(part.view.row(i))[j];
          const volatile float product = one * p.weight.scale(j, k.begin);
          sum = grouped ? sum + product : product;
        }
      }
    }
    return sums;
  }

  std::int64_t share_ = 1;
};

constexpr Dtype kFloats[] = {Dtype::f32, Dtype::bf16, Dtype::f16};  // NOLINT(*-avoid-c-arrays)

TEST_P(QuantProducts, HaveTheBitsOfTheirPartsPutTogether) {
  int done = 0;
  for (int round = 0; round < 90 / share_; ++round) {
    const GemmDesc desc = random_desc(kFloats[round % 3], kFloats[round / 3 % 3]);
    if (!can(desc)) continue;
    ++done;
    const QuantProblem p(desc, static_cast<unsigned>(round));
    const Matrix y(desc.out, desc.m, desc.n);
    select(desc).run({.x = {p.x.view}, .weight = p.packed, .out = y.view, .bias = p.bias.view});
    ASSERT_TRUE(tensor::same_bits(y.view, composed(p).view)) << name(desc);
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// |computed - exact| <= gamma_terms · sum of |x · w|; of each group's sum a product with its scale
// is added, and of all at most k + groups + the scale at the end + the bias are rounded.
TEST_P(QuantProducts, AreAsNearAsTheirRoundingsAllow) {
  for (int round = 0; round < 12 / share_; ++round) {
    const GemmDesc desc = random_desc(kFloats[round % 3], Dtype::f32);
    if (!can(desc)) continue;
    const QuantProblem p(desc, 100U + static_cast<unsigned>(round));
    const Matrix y(desc.out, desc.m, desc.n);
    select(desc).run({.x = {p.x.view}, .weight = p.packed, .out = y.view, .bias = p.bias.view});
    const tensor::Roundings way = {.terms = desc.k + 2 * p.depth.groups() + 2, .out = desc.out};
    for (std::int64_t j = 0; j < desc.n; ++j) {
      const std::vector<double> column = p.column(j);
      for (std::int64_t i = 0; i < desc.m; ++i) {
        double sum = at(p.bias.view, 0, j);
        double magnitude = std::abs(sum);
        for (std::int64_t k = 0; k < desc.k; ++k) {
          const double product = p.rows[static_cast<std::size_t>(i * desc.k + k)] *
                                 column[static_cast<std::size_t>(k)];
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_LE(std::abs(at(y.view, i, j) - sum), tensor::tolerance(way, magnitude))
            << name(desc) << " at [" << i << ", " << j << ']';
      }
    }
  }
}

// An element's bits depend on its row, its column and the backend alone: not on how many rows there
// are, which decides whether the panel is expanded.
TEST_P(QuantProducts, HaveTheSameBitsHoweverTheyAreCut) {
  int done = 0;
  for (int round = 0; round < 36 / share_; ++round) {
    GemmDesc desc = random_desc(kFloats[round % 3], Dtype::f32);
    desc.m = 40 + below(60);
    if (!can(desc)) continue;
    ++done;
    const QuantProblem p(desc, 200U + static_cast<unsigned>(round));
    const Matrix whole(Dtype::f32, desc.m, desc.n);
    select(desc, 1 + round % 2).run({.x = {p.x.view}, .weight = p.packed, .out = whole.view});
    Gemm gemm = select(desc, 1 + round % 3);
    for (int cut = 0; cut < 10; ++cut) {
      const std::int64_t row = below(desc.m);
      const std::int64_t rows = std::min(desc.m - row, 1 + below(below(3) == 0 ? 60 : 17));
      const std::int64_t col = below(desc.n);
      const std::int64_t cols = 1 + below(desc.n - col);
      const Matrix part(Dtype::f32, rows, cols);
      gemm.run({.x = {p.x.view},
                .weight = p.packed,
                .out = part.view,
                .window = {.rows = {row, row + rows}, .columns = {col, col + cols}}});
      ASSERT_TRUE(tensor::same_bits(
          part.view, whole.view.row_range(row, row + rows).column_range(col, col + cols)))
          << name(desc) << " rows " << row << " + " << rows << " columns " << col << " + " << cols;
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// The sums of groups and leaves are added by other loops for one row than for several.
TEST_P(QuantProducts, HaveOneNotANumber) {
  int done = 0;
  for (const char* text : {"s4:group=32", "s8:channel"}) {
    for (const std::int64_t k : {320, 2048}) {
      const GemmDesc desc = {.m = 40 / share_,
                             .n = 130 / share_,
                             .k = k,
                             .out = Dtype::f32,
                             .quant = parse_quant_scheme(text)};
      if (!can(desc)) continue;
      ++done;
      const QuantProblem p(desc, 3);
      std::mt19937 random(3);
      for (std::int64_t row = 0; row < desc.m; ++row) {
        for (std::int64_t i = 0; i < k; ++i) {
          if (random() % 61 != 0) continue;
          constexpr float kInfinity = std::numeric_limits<float>::infinity();
          const float values[] = {kInfinity, -kInfinity, std::bit_cast<float>(0x7fc20000U),
                                  std::bit_cast<float>(0xffe40000U)};
          convert(&values[random() % 4], Dtype::f32,
                  static_cast<std::byte*>(p.x.view.row(row)) + i * size_of(desc.x), desc.x, 1);
        }
      }
      const Matrix whole(Dtype::f32, desc.m, desc.n);
      select(desc, 1).run({.x = {p.x.view}, .weight = p.packed, .out = whole.view});
      Gemm gemm = select(desc, 1);
      for (std::int64_t row = 0; row < desc.m; ++row) {
        const Matrix alone(Dtype::f32, 1, desc.n);
        gemm.run({.x = {p.x.view},
                  .weight = p.packed,
                  .out = alone.view,
                  .window = {.rows = {row, row + 1}, .columns = {0, desc.n}}});
        ASSERT_TRUE(tensor::same_bits(alone.view, whole.view.row_range(row, row + 1)))
            << name(desc) << " row " << row;
        for (std::int64_t j = 0; j < desc.n; ++j) {
          const float y = static_cast<const float*>(alone.view.row(0))[j];
          if (std::isnan(y)) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(y), 0xffc00000U) << name(desc);
          }
        }
      }
    }
  }
  if (done == 0) GTEST_SKIP() << refusal_of(GetParam());
}

// More rows than are packed at once, and blocks of panels that are expanded in turns.
TEST_P(QuantProducts, TakeManyRows) {
  if (GetParam() == "reference") GTEST_SKIP() << "has no blocks";
  for (const char* scheme : {"s8:channel:offsets", "s4:group=48:offsets", "s8:group=600"}) {
    const GemmDesc desc = {
        .m = 1030, .n = 330, .k = 700, .out = Dtype::f32, .quant = parse_quant_scheme(scheme)};
    if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
    const QuantProblem p(desc, 7);
    const Matrix y(desc.out, desc.m, desc.n);
    select(desc, 2).run({.x = {p.x.view}, .weight = p.packed, .out = y.view, .bias = p.bias.view});
    EXPECT_TRUE(tensor::same_bits(y.view, composed(p).view)) << scheme;
  }
}

// A weight's gradient has its x transposed; groups are padded where k is turned over too.
TEST_P(QuantProducts, TakeXTransposed) {
  for (const char* scheme : {"s8", "s8:group=33", "s4:group=64:offsets"}) {
    const GemmDesc desc = {
        .m = 21, .n = 70, .k = 150, .out = Dtype::f32, .quant = parse_quant_scheme(scheme)};
    if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
    const QuantProblem p(desc, 3);
    const Matrix turned(desc.x, desc.k, desc.m);
    for (std::int64_t i = 0; i < desc.m; ++i) {
      for (std::int64_t k = 0; k < desc.k; ++k) {
        static_cast<Bf16*>(turned.view.row(k))[i] = static_cast<const Bf16*>(p.x.view.row(i))[k];
      }
    }
    const Matrix want(desc.out, desc.m, desc.n);
    const Matrix got(desc.out, desc.m, desc.n);
    select(desc).run({.x = {p.x.view}, .weight = p.packed, .out = want.view});
    select(desc).run(
        {.x = {.view = turned.view, .transposed = true}, .weight = p.packed, .out = got.view});
    EXPECT_TRUE(tensor::same_bits(got.view, want.view)) << scheme;
  }
}

TEST_P(QuantProducts, OfNothingAreTheBias) {
  for (const QuantScheme& scheme : all_schemes(3)) {
    for (const std::int64_t m : {0, 1, 40}) {
      for (const std::int64_t n : {0, 1, 65}) {
        const GemmDesc desc = {.m = m, .n = n, .k = 0, .out = Dtype::f32, .quant = scheme};
        if (!can(desc)) continue;
        const QuantProblem p(desc, 1);
        const Matrix y(desc.out, m, n);
        select(desc).run({.x = {p.x.view}, .weight = p.packed, .out = y.view, .bias = p.bias.view});
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) ASSERT_EQ(at(y.view, i, j), at(p.bias.view, 0, j));
        }
      }
    }
  }
}

TEST_P(QuantProducts, AddToWhatIsThere) {
  const GemmDesc desc = {
      .m = 5, .n = 70, .k = 90, .out = Dtype::f32, .quant = parse_quant_scheme("s8:group=32")};
  if (!can(desc)) GTEST_SKIP() << refusal_of(GetParam());
  const QuantProblem p(desc, 2);
  const Matrix once(desc.out, desc.m, desc.n);
  select(desc).run({.x = {p.x.view}, .weight = p.packed, .out = once.view});
  Matrix twice(desc.out, desc.m, desc.n, 9);
  const Matrix before(desc.out, desc.m, desc.n, 9);
  select(desc).run({.x = {p.x.view}, .weight = p.packed, .out = twice.view, .accumulate = true});
  for (std::int64_t i = 0; i < desc.m; ++i) {
    for (std::int64_t j = 0; j < desc.n; ++j) {
      const float sum =
          static_cast<float>(at(once.view, i, j)) + static_cast<float>(at(before.view, i, j));
      ASSERT_EQ(static_cast<float>(at(twice.view, i, j)), sum);
    }
  }
}

TEST(QuantGemm, RefusesWhatDoesNotFit) {
  const GemmDesc desc = {.m = 4, .n = 6, .k = 5, .quant = parse_quant_scheme("s8:group=2")};
  const QuantProblem p(desc, 1);
  const Matrix y(Dtype::bf16, 4, 6);
  const Matrix plain(Dtype::bf16, 6, 5);
  const Matrix values(Dtype::s8, 6, 5);
  const auto refusal_of = [](const GemmDesc& made_for, const GemmCall& call) {
    return sentence_of([&] { select_gemm(made_for).run(call); });
  };
  GemmCall call = {.x = {p.x.view}, .weight = p.packed, .out = y.view};
  EXPECT_EQ(refusal_of(desc, call), "nothing was refused");

  GemmDesc other = desc;
  other.quant = parse_quant_scheme("s8");
  EXPECT_NE(refusal_of(other, call)
                .find("matmul: weight is s8:group=2 but the product was made for s8:channel"),
            std::string::npos);
  other.quant.reset();
  EXPECT_NE(refusal_of(other, call)
                .find("matmul: weight is s8:group=2 but the product was made for bf16"),
            std::string::npos);
  other = desc;
  other.n = 7;
  EXPECT_NE(refusal_of(other, call).find("weight has n=6 k=5 but the product was made for n=7 k=5"),
            std::string::npos);
  call.weight = WeightView{plain.view, WeightLayout::out_in};
  EXPECT_NE(refusal_of(desc, call)
                .find("matmul: weight is bf16 but the product was made for "
                      "s8:group=2; a quantised weight comes as a PackedWeight"),
            std::string::npos);
  call.weight = WeightView{values.view, WeightLayout::out_in};
  EXPECT_NE(refusal_of(desc, call)
                .find("matmul: weight is an s8 view of 6 x 5, which needs scales: "
                      "QuantizedWeight::from_parts() takes both"),
            std::string::npos);
  const PackedWeight bare(WeightView{plain.view, WeightLayout::out_in});
  call.weight = bare;
  EXPECT_NE(
      refusal_of(desc, call).find("matmul: weight is bf16 but the product was made for s8:group=2"),
      std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantProducts, all_backends(), name_of);

}  // namespace
}  // namespace plait
