// Operators whose partial sums travel in 8 bits: the same bits however they are cut and sent, and
// within the bound that tensor/coded_rows.h gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "ops/shapes.h"
#include "plait/collectives.h"
#include "plait/ops.h"
#include "tensor/coded_rows.h"
#include "tensor/compare.h"
#include "tensor/reduce.h"

namespace plait {
namespace {

constexpr std::int64_t kDepth = 40;

// Plans whose parts and chunks would begin anywhere among the columns, were it not for the groups.
constexpr const char* kPlans[] = {"serial",
                                  "pipelined parts=3",
                                  "pipelined parts=64 first=1 last=1",
                                  "pipelined parts=5 axis=rows",
                                  "pipelined parts=2 axis=columns last=1",
                                  "fused",
                                  "fused chunk=7",
                                  "fused chunk=100 poll=0",
                                  "fused chunk=1000000"};

struct Size {
  std::int64_t m;
  std::int64_t n;
};

// The share of k of one rank. Every rank can make those of all.
struct Share {
  Share(Size its_size, int rank)
      : size(its_size),
        x(Dtype::bf16, size.m, kDepth, static_cast<std::uint64_t>(rank) + 1),
        w(Dtype::bf16, size.n, kDepth, static_cast<std::uint64_t>(rank) + 50) {}

  WeightView weight() const { return {.view = w.view, .layout = WeightLayout::out_in}; }

  // Its partial sums in f32.
  Matrix product() const {
    Matrix sums(Dtype::f32, x.view.rows, w.view.rows);
    select_gemm({.m = x.view.rows, .n = w.view.rows, .k = kDepth, .out = Dtype::f32},
                {.threads = 1})
        .run({.x = {x.view}, .weight = weight(), .out = sums.view});
    return sums;
  }

  Size size;
  Matrix x;
  Matrix w;
};

Matrix bias_of(Size size) { return {Dtype::f32, 1, size.n, 3}; }

// All rows of the sum, one element after another: every rank's sums, coded and decoded, then added
// in pairs.
Matrix in_steps(Size size, int world, Dtype out) {
  std::vector<Matrix> products;
  for (int rank = 0; rank < world; ++rank) products.push_back(Share(size, rank).product());
  const Matrix bias = bias_of(size);
  Matrix result(out, size.m, size.n);
  std::vector<float> sums(static_cast<std::size_t>(size.n));
  for (std::int64_t row = 0; row < size.m; ++row) {
    std::vector<const void*> places;
    for (const Matrix& product : products) {
      auto* numbers = static_cast<float*>(product.view.row(row));
      tensor::round_as_coded(numbers, numbers, size.n);
      places.push_back(numbers);
    }
    tensor::sum_as_tree(sums.data(), Dtype::f32, places.data(), world, Dtype::f32, sums.size());
    const void* both[] = {sums.data(), bias.view.row(0)};
    tensor::sum_as_tree(result.view.row(row), out, both, 2, Dtype::f32, sums.size());
  }
  return result;
}

struct Called {
  Operator op = Operator::matmul_all_reduce;
  Dtype out = Dtype::bf16;
};

Matrix run(const Called& what, const Share& share, Communicator& comm, const OpOptions& how) {
  const Matrix bias = bias_of(share.size);
  const std::int64_t rows =
      ops::count(ops::shapes_of(what.op).out, share.size.m, comm.rank(), comm.world());
  Matrix out(what.out, rows, share.size.n);
  OpOptions options = how;
  options.wire = Dtype::s8;
  options.bias = bias.view;
  const auto call =
      what.op == Operator::matmul_all_reduce ? matmul_all_reduce : matmul_reduce_scatter;
  call(share.x.view, share.weight(), out.view, comm, options);
  return out;
}

Matrix run(const Called& what, Size size, Communicator& comm, const OpOptions& how) {
  return run(what, Share(size, comm.rank()), comm, how);
}

// One thread alone is seen without a sanitizer.
const std::vector<int> kThreads = kIsSanitized ? std::vector{3} : std::vector{1, 3};

// Every plan, number of threads and operator has the bits of those steps.
void expect_bits(Size size, Dtype out, Communicator& comm) {
  const Matrix want = in_steps(size, comm.world(), out);
  const Share share(size, comm.rank());
  for (const Operator op : {Operator::matmul_all_reduce, Operator::matmul_reduce_scatter}) {
    const Range rows = ops::range_of(ops::shapes_of(op).out, size.m, comm.rank(), comm.world());
    for (const char* plan : kPlans) {
      for (const int threads : kThreads) {
        const Matrix got = run({.op = op, .out = out}, share, comm,
                               {.plan = parse_plan(plan), .threads = threads});
        const auto same = tensor::same_bits(got.view, want.view.row_range(rows.begin, rows.end));
        ASSERT_TRUE(same) << same.describe() << ", " << name(op) << " of " << size.m << " x "
                          << size.n << ", " << plan << ", threads " << threads << ", rank "
                          << comm.rank() << " of " << comm.world();
      }
    }
  }
}

TEST(CodedWire, HasTheSameBitsInEveryPlanAndWorld) {
  for (const int world : {1, 2, 3, 4}) {
    run_as_threads(world, [](Communicator& comm) {
      for (const Size size : {Size{1, 1}, Size{2, 63}, Size{37, 64}, Size{5, 65}, Size{33, 129},
                              Size{0, 70}, Size{9, 0}})
        expect_bits(size, Dtype::bf16, comm);
      expect_bits({17, 321}, Dtype::f32, comm);
    });
  }
}

// Too many sums to be sent to all ranks; rows too long for one chunk; rows too many for one.
TEST(CodedWire, HasThemWhereSumsAreMany) {
  run_as_threads(2, [](Communicator& comm) {
    expect_bits({301, 1010}, Dtype::bf16, comm);
    expect_bits({3, 140'001}, Dtype::bf16, comm);
  });
}

TEST(CodedWire, HasThemOnEveryTransport) {
  for (const RunRanks runner : {run_in_processes, run_over_tcp}) {
    runner(3, [](Communicator& comm) {
      expect_bits({33, 129}, Dtype::bf16, comm);
      expect_bits({130, 710}, Dtype::f32, comm);
    });
  }
}

TEST(CodedWire, HasThemOverALink) {
  run_as_threads(2, [](Communicator& comm) { expect_bits({150, 500}, Dtype::bf16, comm); },
                 {.link = parse_link("1gbit,100us")});
}

// A rank's sums are off by at most 1/252 of the largest one of their 64 columns.
TEST(CodedWire, IsWithinItsBound) {
  run_as_threads(4, [](Communicator& comm) {
    constexpr Size kSize = {64, 200};
    const Matrix got = run({.out = Dtype::f32}, kSize, comm, {});
    const Matrix bias = bias_of(kSize);
    std::vector<Matrix> products;
    for (int rank = 0; rank < comm.world(); ++rank)
      products.push_back(Share(kSize, rank).product());
    double most = 0;
    for (std::int64_t row = 0; row < kSize.m; ++row) {
      for (std::int64_t column = 0; column < kSize.n; ++column) {
        const std::int64_t first = column / 64 * 64;
        double sum = at(bias.view, 0, column);
        double magnitude = std::abs(sum);
        double bound = 0;
        for (const Matrix& product : products) {
          double largest = 0;
          for (std::int64_t j = first; j < std::min(first + 64, kSize.n); ++j)
            largest = std::max(largest, std::abs(double{at(product.view, row, j)}));
          sum += at(product.view, row, column);
          magnitude += largest;
          bound += largest / 252;
        }
        // The additions in f32: a tree of four, and the bias.
        bound += 3 * 0x1p-24 * magnitude * 1.01;
        const double error = std::abs(at(got.view, row, column) - sum);
        ASSERT_LE(error, bound) << row << ", " << column;
        most = std::max(most, error / bound);
      }
    }
    EXPECT_GT(most, 0.3) << "the sums have not been rounded to 8 bits";
  });
}

// It is seen in all columns that share its scale, on the rank that gets the row.
TEST(CodedWire, ShowsAnInfinityInItsGroup) {
  run_as_threads(2, [](Communicator& comm) {
    constexpr Size kSize = {4, 200};
    const Matrix usual = run({}, kSize, comm, {});
    for (const char* plan : kPlans) {
      Share share(kSize, comm.rank());
      // Rank 1's column 70 is infinite, or no number, in every row.
      const Bf16 broken(std::numeric_limits<float>::infinity());
      if (comm.rank() == 1) std::memcpy(share.w.view.row(70), &broken, sizeof(broken));
      const Matrix bias = bias_of(kSize);
      const Matrix out(Dtype::bf16, kSize.m, kSize.n);
      matmul_all_reduce(share.x.view, share.weight(), out.view, comm,
                        {.wire = Dtype::s8, .plan = parse_plan(plan), .bias = bias.view});
      for (std::int64_t row = 0; row < kSize.m; ++row) {
        for (std::int64_t column = 0; column < kSize.n; ++column) {
          const auto got = at(out.view, row, column);
          if (column / 64 == 1) {
            ASSERT_TRUE(std::isnan(got)) << column << ", " << plan;
          } else {
            ASSERT_EQ(got, at(usual.view, row, column)) << column << ", " << plan;
          }
        }
      }
    }
  });
}

TEST(CodedWire, IsOneThatAllRanksAskFor) {
  run_as_threads(2, [](Communicator& comm) {
    const Size size = {8, 70};
    const Share share(size, comm.rank());
    const Matrix out(Dtype::bf16, size.m, size.n);
    const Dtype wire = comm.rank() == 0 ? Dtype::s8 : Dtype::bf16;
    expect_error(Code::mismatch, "the wire", [&] {
      matmul_all_reduce(share.x.view, share.weight(), out.view, comm, {.wire = wire});
    });
  });
}

// Others send x, or sums of it, in x's dtype, as with every other wire.
TEST(CodedWire, ChangesOnlySumsOfProducts) {
  run_as_threads(2, [](Communicator& comm) {
    const Share share({8, 70}, comm.rank());
    const Matrix one(Dtype::bf16, 16, 70);
    const Matrix other(Dtype::bf16, 16, 70);
    all_gather_matmul(share.x.view, share.weight(), one.view, comm);
    all_gather_matmul(share.x.view, share.weight(), other.view, comm, {.wire = Dtype::s8});
    EXPECT_TRUE(tensor::same_bits(one.view, other.view));
  });
}

TEST(CodedWire, AddsInATreeOverRanks) {
  const SumTree tree =
      sum_tree({.op = Operator::matmul_all_reduce, .m = 4, .n = 64, .k = 2048}, 2, Dtype::s8);
  EXPECT_FALSE(tree);
}

}  // namespace
}  // namespace plait
