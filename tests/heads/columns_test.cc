// Columns that ranks share, against the product of one rank, to the bit.
#include "plait/columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>

#include "comm/core/executor.h"
#include "comm/session/state.h"
#include "conformance/one_plan.h"
#include "problem.h"

namespace plait {
namespace {

constexpr std::byte kUntouched{0x5a};

std::vector<std::int64_t> counts_of(const std::vector<std::int64_t>& firsts) {
  std::vector<std::int64_t> counts;
  for (std::size_t rank = 0; rank + 1 < firsts.size(); ++rank)
    counts.push_back(firsts[rank + 1] - firsts[rank]);
  return counts;
}

// A matrix with gaps between its rows.
struct Gapped {
  std::int64_t stride;
  std::vector<std::byte> bytes;
  TensorView view;

  Gapped(std::int64_t rows, std::int64_t cols, Dtype dtype)
      : stride(cols + 3),
        bytes(static_cast<std::size_t>(rows * stride) * size_of(dtype), kUntouched),
        view({.data = bytes.data(),
              .dtype = dtype,
              .rows = rows,
              .cols = cols,
              .row_stride = stride}) {}
};

class ColumnsOfRanks : public RanksTest {
 protected:
  void expect_product(const Head& head, Dtype out, const std::optional<Plan>& plan = {}) const {
    std::vector<float> bias(static_cast<std::size_t>(head.v));
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 7);
    for (const bool has_bias : {false, true}) {
      Gapped wanted(head.m, head.v, out);
      Gemm gemm = select_gemm({.m = head.m,
                               .n = head.v,
                               .k = head.k,
                               .x = head.dtype,
                               .weight = head.dtype,
                               .out = out});
      GemmCall call = {.x = {head.x_view()}, .weight = head.weight(0, head.v), .out = wanted.view};
      if (has_bias) call.bias = ConstTensorView::of(bias.data(), 1, head.v);
      gemm.run(call);
      run([&](Communicator& comm) {
        for (const auto& firsts : {even_shares(head.v, world()), odd_shares(head.v, world())}) {
          const auto counts = counts_of(firsts);
          const auto rank = static_cast<std::size_t>(comm.rank());
          const WeightView weight = head.weight(firsts[rank], counts[rank]);
          ColumnsOptions options = {.counts = counts, .threads = 2, .plan = plan};
          if (has_bias)
            options.bias = ConstTensorView::of(bias.data() + firsts[rank], 1, counts[rank]);
          Gapped found(head.m, head.v, out);
          matmul_all_gather_columns(head.x_view(), weight, found.view, comm, options);
          EXPECT_TRUE(same_bits(found.bytes, wanted.bytes));
          // The columns alone, from elsewhere and from their place.
          Gapped own(head.m, counts[rank], out);
          for (std::int64_t row = 0; row < head.m && counts[rank] > 0; ++row)
            std::memcpy(own.view.row(row),
                        wanted.view.column_range(firsts[rank], firsts[rank + 1]).row(row),
                        own.view.row_bytes());
          Gapped all(head.m, head.v, out);
          all_gather_columns(own.view, all.view, comm, counts);
          EXPECT_TRUE(same_bits(all.bytes, wanted.bytes));
          const TensorView place = all.view.column_range(firsts[rank], firsts[rank + 1]);
          all_gather_columns(place, all.view, comm, counts);
          EXPECT_TRUE(same_bits(all.bytes, wanted.bytes));
        }
      });
    }
  }

  // Ranks share the columns of x, and each multiplies by its own part of the weight.
  void expect_product_of_gathered(const Head& head, Dtype out,
                                  const std::optional<Plan>& plan = {}) const {
    Gapped wanted(head.m, head.v, out);
    Gemm gemm = select_gemm(
        {.m = head.m, .n = head.v, .k = head.k, .x = head.dtype, .weight = head.dtype, .out = out});
    gemm.run({.x = {head.x_view()}, .weight = head.weight(0, head.v), .out = wanted.view});
    run([&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      const auto ids = odd_shares(head.v, world());
      const std::int64_t own = ids[rank + 1] - ids[rank];
      for (const auto& firsts : {even_shares(head.k, world()), odd_shares(head.k, world())}) {
        const auto counts = counts_of(firsts);
        const ConstTensorView x = head.x_view().column_range(firsts[rank], firsts[rank + 1]);
        Gapped gathered(head.m, head.k, head.dtype);
        Gapped found(head.m, own, out);
        for (const bool in_place : {false, true}) {
          std::fill(found.bytes.begin(), found.bytes.end(), std::byte{0});
          const ConstTensorView mine =
              in_place ? gathered.view.column_range(firsts[rank], firsts[rank + 1]) : x;
          all_gather_columns_matmul(mine, head.weight(ids[rank], own), gathered.view, found.view,
                                    comm, {.counts = counts, .threads = 2, .plan = plan});
          EXPECT_TRUE(same_rows(gathered.view, head.x_view()));
          EXPECT_TRUE(same_rows(found.view, wanted.view.column_range(ids[rank], ids[rank + 1])));
        }
      }
    });
  }

  static bool same_rows(const ConstTensorView& a, const ConstTensorView& b) {
    for (std::int64_t row = 0; a.cols > 0 && row < a.rows; ++row)
      if (std::memcmp(a.row(row), b.row(row), a.row_bytes()) != 0) return false;
    return true;
  }
};

TEST_P(ColumnsOfRanks, AreGatheredBeforeAProduct) {
  for (const std::int64_t m : {0, 1, 5, 130, 700})
    expect_product_of_gathered(Head(m, 37, 203), Dtype::f32);
  expect_product_of_gathered(Head(65, 1300, 64, Dtype::bf16), Dtype::f16);
}

TEST_P(ColumnsOfRanks, HaveTheBitsOfOneProduct) {
  for (const std::int64_t m : {0, 1, 5, 130}) expect_product(Head(m, 2003, 17), Dtype::f32);
  expect_product(Head(1, 40'000, 16, Dtype::bf16), Dtype::bf16);
  expect_product(Head(64, 1300, 64, Dtype::bf16), Dtype::f16);
  expect_product(Head(3, 2, 17), Dtype::f32);
}

TEST_P(ColumnsOfRanks, HaveTheSameBitsInEveryPlan) {
  for (const char* words : {"serial", "pipelined parts=3", "pipelined parts=64", "fused chunk=1",
                            "fused chunk=100", "pipelined parts=2 axis=rows"}) {
    const Plan plan = parse_plan(words);
    expect_product(Head(70, 1300, 17), Dtype::f32, plan);
    expect_product_of_gathered(Head(70, 37, 203), Dtype::f32, plan);
  }
  expect_product_of_gathered(Head(0, 37, 203), Dtype::f32, parse_plan("serial"));
}

INSTANTIATE_TEST_SUITE_P(Threads, ColumnsOfRanks,
                         worlds_of({.name = "threads", .run = run_as_threads}, {1, 2, 3}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shm, ColumnsOfRanks,
                         worlds_of({.name = "shm", .run = run_in_processes}, {2, 4}), case_name);
INSTANTIATE_TEST_SUITE_P(Hosts, ColumnsOfRanks,
                         worlds_of({.name = "hosts", .run = over_hosts({0, 0, 1, 1})}, {4}),
                         case_name);

TEST(Columns, AreBalancedUnlessCounted) {
  const Head head(4, 5, 3);
  run_in_threads(2, [&](Communicator& comm) {
    std::vector<float> out(20);
    const TensorView view = TensorView::of(out.data(), 4, 5);
    const std::int64_t first = comm.rank() == 0 ? 0 : 3;
    matmul_all_gather_columns(head.x_view(), head.weight(first, comm.rank() == 0 ? 3 : 2), view,
                              comm);
    EXPECT_TRUE(same_bits(out, head.logits()));
  });
}

TEST(Columns, RefuseAnInputAcrossTheOutput) {
  run_in_threads(1, [](Communicator& comm) {
    std::vector<float> all(12, 3);
    const TensorView view = TensorView::of(all.data(), 3, 4);
    TensorView mine = view;
    all_gather_columns(mine, view, comm);  // it is in its place
    mine.row_stride = 3;
    EXPECT_THROW(all_gather_columns(mine, view, comm), Error);
    mine = TensorView::of(all.data(), 2, 4);
    const TensorView next = TensorView::of(all.data() + 4, 2, 4);
    EXPECT_EQ(std::string(expect_error(Code::invalid_argument,
                                       [&] { all_gather_columns(mine, next, comm); })
                              .what()),
              "all_gather_columns: the input overlaps the output, and is not this rank's part of "
              "it");
    mine.data = nullptr;
    EXPECT_THROW(all_gather_columns(mine, view.row_range(0, 2), comm), Error);
  });
}

TEST(Columns, GatheredBeforeAProductRefuseInASentence) {
  const Head head(2, 3, 4);
  run_in_threads(2, [&](Communicator& comm) {
    std::vector<float> memory(22, -7);
    const TensorView gathered = TensorView::of(memory.data(), 2, 4);
    const TensorView out = TensorView::of(memory.data() + 16, 2, 3);
    const auto sentence = [&](const WeightView& weight, const TensorView& x_of_all,
                              const TensorView& to, ColumnsOptions options) {
      const ConstTensorView x = head.x_view().column_range(0, 2);
      return std::string(expect_error(Code::invalid_argument, [&] {
                           all_gather_columns_matmul(x, weight, x_of_all, to, comm, options);
                         }).what());
    };
    const std::vector<std::int64_t> counts = {1, 3};
    EXPECT_TRUE(sentence(head.weight(0, 3), gathered, out, {.counts = counts})
                    .starts_with("all_gather_columns_matmul: rank "));
    EXPECT_EQ(sentence(head.weight(0, 2), gathered, out, {}),
              "all_gather_columns_matmul: the output is [2, 3], not [2, 2]");
    EXPECT_EQ(sentence(head.weight(0, 3), gathered, TensorView::of(memory.data() + 7, 2, 3), {}),
              "all_gather_columns_matmul: the output overlaps the input");
    WeightView other = head.weight(0, 3);
    --other.view.cols;
    EXPECT_FALSE(sentence(other, gathered, out, {}).empty());
    // A product reads the weight when columns have come, so all is refused before.
    const WeightView in_memory = {.view = ConstTensorView::of(memory.data() + 4, 3, 4),
                                  .layout = WeightLayout::out_in};
    EXPECT_EQ(sentence(in_memory, gathered, out, {}),
              "all_gather_columns_matmul: the place for all columns overlaps the weight");
    const ConstTensorView bias = ConstTensorView::of(memory.data() + 5, 1, 3);
    EXPECT_EQ(sentence(head.weight(0, 3), gathered, out, {.bias = bias}),
              "all_gather_columns_matmul: the place for all columns overlaps the bias");
    EXPECT_TRUE(sentence(head.weight(0, 3), gathered, out, {.bias = out.row_range(0, 1)})
                    .starts_with("matmul: out overlaps bias: "));
    TensorView nowhere = out;
    nowhere.data = nullptr;
    EXPECT_EQ(sentence(head.weight(0, 3), gathered, nowhere, {}),
              "matmul: out is 2 x 3 but its data is null");
    EXPECT_EQ(memory, std::vector<float>(22, -7));
  });
}

// Counts products in place of making them.
class CountedProducts final : public comm::Executor {
 public:
  bool has_products() const override { return true; }
  void multiply(const comm::ProductWork& /*product*/, PollStep poll_step) override {
    ++count;
    poll_step();
  }
  int count = 0;
};

// The number of products of a call, which its plan decides.
int products_of(Communicator& comm, const std::function<void()>& call) {
  CountedProducts products;
  const comm::ScopedExecutor scoped(comm.state().group(), products);
  call();
  return products.count;
}

TEST(Columns, FollowThePlanOfTheirSource) {
  const Head head(130, 1000, 64, Dtype::bf16);
  run_in_threads(2, [&](Communicator& comm) {
    std::vector<std::byte> logits(static_cast<std::size_t>(head.m * head.v) * 2);
    const TensorView out = {
        .data = logits.data(), .dtype = Dtype::bf16, .rows = head.m, .cols = head.v};
    const std::int64_t first = comm.rank() * 500;
    const auto gather = [&](const PlanSource& plans) {
      return products_of(comm, [&] {
        matmul_all_gather_columns(head.x_view(), head.weight(first, 500), out, comm,
                                  {.threads = 1, .plans = &plans});
      });
    };
    const OnePlan serial("serial");
    const OnePlan parts("pipelined parts=4");
    EXPECT_EQ(gather(serial), 1);
    EXPECT_EQ(gather(parts), 4);
    EXPECT_EQ(parts.asked,
              "op=matmul_all_gather_columns m=130 n=1000 k=64 x=bf16 w=bf16:plain out=bf16 "
              "wire=bf16 ranks=2 threads=1 transport=threads columns=500");
    // Each rank has its own n, and one key.
    std::vector<std::byte> x(static_cast<std::size_t>(head.m * head.k) * 2);
    const TensorView gathered = {
        .data = x.data(), .dtype = Dtype::bf16, .rows = head.m, .cols = head.k};
    const std::int64_t own = comm.rank() == 0 ? 100 : 300;
    const auto gather_first = [&](const PlanSource& plans) {
      return products_of(comm, [&] {
        all_gather_columns_matmul(
            head.x_view().column_range(comm.rank() * 32, comm.rank() * 32 + 32),
            head.weight(0, own), gathered, out.column_range(0, own), comm,
            {.threads = 1, .plans = &plans});
      });
    };
    EXPECT_EQ(gather_first(serial), 1);
    EXPECT_EQ(gather_first(parts), 4);
    EXPECT_EQ(parts.asked,
              "op=all_gather_columns_matmul m=130 n=400 k=64 x=bf16 w=bf16:plain out=bf16 "
              "wire=bf16 ranks=2 threads=1 transport=threads columns=32");
    const OnePlan other(comm.rank() == 0 ? "serial" : "fused");
    expect_error(Code::mismatch, [&] { gather_first(other); });
  });
}

// The first block of each is alike.
TEST(Columns, GatheredBeforeAProductNeedTheSameRowsOnAllRanks) {
  run_in_threads(2, [](Communicator& comm) {
    const Head head(comm.rank() == 0 ? 64 : 128, 3, 4);
    std::vector<float> gathered(static_cast<std::size_t>(head.m) * 4);
    std::vector<float> out(static_cast<std::size_t>(head.m) * 3);
    const Error error = expect_error(Code::mismatch, [&] {
      all_gather_columns_matmul(head.x_view().column_range(0, 2), head.weight(0, 3),
                                TensorView::of(gathered.data(), head.m, 4),
                                TensorView::of(out.data(), head.m, 3), comm);
    });
    EXPECT_TRUE(contains(error.what(), "disagree on elements: ")) << error.what();
  });
}

TEST(Columns, RefuseInASentence) {
  const Head head(2, 10, 4);
  const auto sentence = [&](Code code, const std::vector<std::int64_t>& counts,
                            std::int64_t last = -1) {
    std::string said;
    run_in_threads(2, [&](Communicator& comm) {
      std::vector<float> out(20, -7);
      std::vector<std::int64_t> own_counts = counts;
      if (comm.rank() == 1 && last >= 0) own_counts = {10 - last, last};
      const std::int64_t own = comm.rank() == 1 && last >= 0 ? last : 5;
      const Error error = expect_error(code, [&] {
        matmul_all_gather_columns(head.x_view(), head.weight(0, own),
                                  TensorView::of(out.data(), 2, 10), comm, {.counts = own_counts});
      });
      if (code == Code::invalid_argument) {
        EXPECT_EQ(out[0], -7);
      }
      if (comm.rank() == 0) said = error.what();
    });
    return said;
  };
  EXPECT_EQ(
      sentence(Code::invalid_argument, {5, 4}),
      "matmul_all_gather_columns: the counts add up to 9, not to the 10 columns of the output");
  EXPECT_EQ(sentence(Code::invalid_argument, {10}),
            "matmul_all_gather_columns: 1 counts for 2 ranks");
  EXPECT_EQ(sentence(Code::invalid_argument, {6, 4}),
            "matmul_all_gather_columns: rank 0 has 5 columns, not 6");
  EXPECT_TRUE(contains(sentence(Code::mismatch, {5, 5}, 4), "shards"));
}

}  // namespace
}  // namespace plait
