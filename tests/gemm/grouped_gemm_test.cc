// Promises of a product of groups (plait/grouped_gemm.h): a Gemm's bits, group by group.
#include "plait/grouped_gemm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "gemm/matrix.h"
#include "gemm/quant_problem.h"
#include "plait/packed_weight.h"
#include "plait/quantized.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

// Groups of random rows and weights.
struct Groups {
  Groups(const GemmDesc& description, const std::vector<std::int64_t>& counts)
      : desc(description),
        rows(counts),
        x(desc.x, total(counts), desc.k, 1),
        out(desc.out, total(counts), desc.n, 2) {
    for (std::size_t group = 0; group < rows.size(); ++group) {
      const auto seed = static_cast<unsigned>(10 + group);
      if (desc.quant) {
        packed.emplace_back(random_weight(*desc.quant, desc.n, desc.k, seed));
      } else {
        plain.emplace_back(desc.weight, desc.n, desc.k, seed);
        packed.emplace_back(WeightView{.view = plain.back().view, .layout = WeightLayout::out_in});
      }
      weights.emplace_back(packed.back());
      bias.emplace_back(Dtype::f32, 1, desc.n, seed + 1000);
      biases.push_back(bias.back().view);
    }
  }
  static std::int64_t total(const std::vector<std::int64_t>& counts) {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += count;
    return sum;
  }
  GroupedGemmCall call() const {
    return {.x = x.view, .rows = rows, .weights = weights, .out = out.view, .biases = biases};
  }

  // From now on the group's weight is the one that is not packed.
  void read_plain(std::size_t group) {
    weights[group] = WeightView{.view = plain[group].view, .layout = WeightLayout::out_in};
  }

  GemmDesc desc;
  std::vector<std::int64_t> rows;
  Matrix x;
  Matrix out;
  std::deque<Matrix> plain;
  std::deque<PackedWeight> packed;
  std::deque<Matrix> bias;
  std::vector<Weight> weights;
  std::vector<ConstTensorView> biases;
};

// The result that is there has the bits of products group by group.
void expect_same_as_a_gemm(const Groups& groups, int threads) {
  Gemm gemm = select_gemm(groups.desc, {.threads = 1});
  std::int64_t first = 0;
  for (std::size_t group = 0; group < groups.rows.size(); ++group) {
    const std::int64_t count = groups.rows[group];
    const Matrix want(groups.desc.out, count, groups.desc.n, 3);
    gemm.run({.x = {.view = groups.x.view.row_range(first, first + count)},
              .weight = groups.weights[group],
              .out = want.view,
              .bias = groups.biases[group]});
    for (std::int64_t row = 0; row < count; ++row) {
      EXPECT_EQ(
          std::memcmp(want.view.row(row), groups.out.view.row(first + row), want.view.row_bytes()),
          0)
          << name(groups.desc) << " threads " << threads << " group " << group << " row " << row;
    }
    first += count;
  }
}

void expect_bits_of_a_gemm(const Groups& groups, int threads) {
  select_grouped_gemm(groups.desc, {.threads = threads}).run(groups.call());
  expect_same_as_a_gemm(groups, threads);
}

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};

TEST(GroupedGemm, HasTheBitsOfAGemm) {
  const std::vector<std::vector<std::int64_t>> counts = {
      {1}, {0, 0, 3, 0}, {1, 2, 0, 17, 1, 1}, {200, 0, 1, 33}, {0, 150, 0}, {0, 0}, {}};
  for (const Dtype dtype : kDtypes) {
    for (const auto& rows : counts) {
      const Groups groups({.m = 4, .n = 701, .k = 91, .x = dtype, .weight = dtype, .out = dtype},
                          rows);
      for (const int threads : {1, 2, 3, 4}) expect_bits_of_a_gemm(groups, threads);
    }
  }
}

TEST(GroupedGemm, HasTheBitsOfAGemmInLeaves) {
  for (const Dtype dtype : kDtypes) {
    const Groups groups({.m = 4, .n = 200, .k = 2048, .x = dtype, .weight = dtype, .out = dtype},
                        {1, 0, 40, 3});
    for (const int threads : {1, 2, 3, 4}) expect_bits_of_a_gemm(groups, threads);
  }
}

// A rank's share may be empty.
TEST(GroupedGemm, TakesWeightsWithoutColumnsOrTerms) {
  for (const auto& [n, k] : {std::pair{0, 91}, std::pair{70, 0}, std::pair{0, 0}}) {
    const Groups groups({.m = 4, .n = n, .k = k}, {3, 0, 5});
    for (const int threads : {1, 2}) expect_bits_of_a_gemm(groups, threads);
  }
}

TEST(GroupedGemm, TakesRandomGroups) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int i = 0; i < 30; ++i) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(draw(1, 12)));
    for (std::int64_t& count : rows) count = draw(0, 2) == 0 ? 0 : draw(0, 40);
    const GemmDesc desc = {.m = draw(1, 30),
                           .n = draw(1, 300),
                           .k = draw(1, 200),
                           .x = kDtypes[draw(0, 2)],
                           .weight = kDtypes[draw(0, 2)],
                           .out = kDtypes[draw(0, 2)]};
    Groups groups(desc, rows);
    for (std::size_t group = 0; group < rows.size(); ++group) {
      if (draw(0, 1) == 0) groups.read_plain(group);
    }
    expect_bits_of_a_gemm(groups, draw(1, 4));
  }
}

TEST(GroupedGemm, TakesEveryScheme) {
  for (const char* scheme : {"s8", "s8:tensor", "s8:channel:offsets", "s8:group=32",
                             "s8:group=32:offsets", "s4", "s4:group=64", "s4:group=64:offsets"}) {
    for (const Dtype dtype : kDtypes) {
      const GemmDesc desc = {.m = 4,
                             .n = 301,
                             .k = 129,
                             .x = dtype,
                             .out = dtype,
                             .quant = parse_quant_scheme(scheme)};
      const Groups groups(desc, {3, 0, 40, 1});
      for (const int threads : {1, 2, 3, 4}) expect_bits_of_a_gemm(groups, threads);
    }
  }
}

// Packed and plain ones in one call.
TEST(GroupedGemm, TakesPlainWeights) {
  Groups groups({.m = 4, .n = 301, .k = 129}, {3, 0, 40, 1});
  for (const std::size_t group : {0, 2, 3}) {
    groups.read_plain(group);
    expect_bits_of_a_gemm(groups, 3);
  }
}

TEST(GroupedGemm, RunsAgainWithOtherGroups) {
  GroupedGemm gemm = select_grouped_gemm({.m = 4, .n = 70, .k = 40}, {.threads = 2});
  for (const auto& rows : std::vector<std::vector<std::int64_t>>{{9, 1}, {0, 2, 70}, {1}, {}}) {
    const Groups groups(gemm.desc(), rows);
    gemm.run(groups.call());
    expect_same_as_a_gemm(groups, 2);
  }
  EXPECT_GT(gemm.held_bytes(), 0);
}

TEST(GroupedGemm, TellsOfEveryElementOnce) {
  const Groups groups({.m = 4, .n = 700, .k = 40}, {5, 0, 70, 1});
  std::mutex mutex;
  std::vector<std::vector<int>> seen(4, std::vector<int>(70 * 700));
  GroupedGemmCall call = groups.call();
  call.on_tile = [&](std::int64_t group, const Tile& tile) {
    const std::lock_guard lock(mutex);
    for (std::int64_t i = tile.rows.begin; i < tile.rows.end; ++i)
      for (std::int64_t j = tile.columns.begin; j < tile.columns.end; ++j)
        ++seen[static_cast<std::size_t>(group)][static_cast<std::size_t>(i * 700 + j)];
  };
  select_grouped_gemm(groups.desc, {.threads = 3}).run(call);
  for (std::size_t group = 0; group < 4; ++group) {
    for (std::size_t i = 0; i < seen[group].size(); ++i)
      EXPECT_EQ(seen[group][i], i < static_cast<std::size_t>(groups.rows[group] * 700) ? 1 : 0);
  }
}

TEST(GroupedGemm, RefusesWhatDoesNotFit) {
  const Groups groups({.m = 4, .n = 70, .k = 40}, {5, 0, 7});
  GroupedGemm gemm = select_grouped_gemm(groups.desc, {.threads = 2});
  const auto refusal = [&](const auto& change) {
    GroupedGemmCall call = groups.call();
    change(call);
    return sentence_of([&] { gemm.run(call); });
  };
  const std::vector<std::int64_t> negative = {5, -1, 8};
  const std::vector<std::int64_t> many = {5, 0, 8};
  const std::vector<std::int64_t> few = {5, 0, 6};
  EXPECT_EQ(refusal([&](GroupedGemmCall& call) { call.rows = negative; }),
            "grouped matmul: group 1 has -1 rows");
  EXPECT_EQ(refusal([&](GroupedGemmCall& call) { call.rows = many; }),
            "grouped matmul: group 2 has 8 rows, and 5 of 12 are taken before it");
  EXPECT_EQ(refusal([&](GroupedGemmCall& call) { call.rows = few; }),
            "grouped matmul: the groups have 11 rows, x 12 and out 12");
  EXPECT_EQ(refusal([&](GroupedGemmCall& call) { call.weights = call.weights.first(2); }),
            "grouped matmul: 2 weights for 3 groups");
  EXPECT_EQ(refusal([&](GroupedGemmCall& call) { call.biases = call.biases.first(2); }),
            "grouped matmul: 2 biases for 3 groups");
  const Groups narrow({.m = 4, .n = 64, .k = 40}, {5, 0, 7});
  std::vector<Weight> mixed = groups.weights;
  mixed[2] = narrow.weights[2];
  EXPECT_EQ(
      refusal([&](GroupedGemmCall& call) { call.weights = mixed; }),
      "grouped matmul: weight has n=64 k=40 but the product was made for n=70 k=40 (group 2)");
  mixed[2] = WeightView{.view = {.dtype = Dtype::bf16, .rows = 70, .cols = 40},
                        .layout = WeightLayout::out_in};
  const std::string null = refusal([&](GroupedGemmCall& call) { call.weights = mixed; });
  EXPECT_TRUE(null.starts_with("grouped matmul: weight") && null.ends_with("(group 2)")) << null;
  // The weight of a group without rows is checked too.
  mixed = groups.weights;
  mixed[1] = narrow.weights[1];
  EXPECT_EQ(
      refusal([&](GroupedGemmCall& call) { call.weights = mixed; }),
      "grouped matmul: weight has n=64 k=40 but the product was made for n=70 k=40 (group 1)");
  // One group's rows may not be written where another one's weight is.
  mixed = groups.weights;
  mixed[2] = WeightView{.view = {.data = groups.out.view.data,
                                 .dtype = Dtype::bf16,
                                 .rows = 70,
                                 .cols = 40,
                                 .row_stride = 40},
                        .layout = WeightLayout::out_in};
  const std::string overlap = refusal([&](GroupedGemmCall& call) { call.weights = mixed; });
  EXPECT_TRUE(overlap.starts_with("grouped matmul: out overlaps weight: ")) << overlap;
  EXPECT_EQ(sentence_of([] { select_grouped_gemm({.m = 4, .n = 70, .k = 40}, {.threads = -1}); }),
            "grouped matmul: threads=-1 is not between 0 and 1024");
  const std::string backend =
      sentence_of([] { select_grouped_gemm({.m = 4, .n = 70, .k = 40}, {.backend = "none"}); });
  EXPECT_TRUE(backend.starts_with("grouped matmul: ")) << backend;
  const std::string again = refusal([&](GroupedGemmCall& call) {
    call.on_tile = [&gemm, same = call](std::int64_t, const Tile&) { gemm.run(same); };
  });
  EXPECT_TRUE(again.starts_with("grouped matmul: this GroupedGemm is running: ")) << again;
}

}  // namespace
}  // namespace plait
