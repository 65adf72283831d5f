// plait verify --layers notices wrong outputs and gradients of any kind.
#include "verify/check.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "conformance/ranks.h"
#include "plait/communicator.h"
#include "verify/spoiling.h"

namespace plait::verify {
namespace {

constexpr int kRanks = 2;

// Two micro-batches whose gradients are accumulated.
LayerCase some_layer(bool row) {
  return {.seed = 5,
          .row = row,
          .m = 13,
          .shares = {24, 23},
          .other = 40,
          .gap = 3,
          .bias = true,
          .asks_bias = true,
          .accumulate = true,
          .in_flight = 2,
          .variants = {{.plan = parse_plan("pipelined parts=3")},
                       {.plan = parse_plan("fused"), .column_backward = true}}};
}

// The message of rank 1 when its results are damaged; rank 0 finds nothing.
std::string found(bool row, const Spoil& spoil) {
  std::array<std::string, kRanks> all;
  run_in_threads(kRanks, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] =
        verify_case(some_layer(row), comm, comm.rank() == 1 ? spoil : Spoil()).failure;
  });
  EXPECT_EQ(all[0], "");
  return all[1];
}

constexpr std::array kMatrices = {"out", "grad_x", "grad_weight", "grad_bias"};

class VerifyLayerCheck : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Cli, VerifyLayerCheck, testing::Values(false, true),
                         [](const auto& one) { return one.param ? "Row" : "Column"; });

TEST_P(VerifyLayerCheck, FindsNothingWhereNothingIsWrong) { EXPECT_EQ(found(GetParam(), {}), ""); }

TEST_P(VerifyLayerCheck, FindsABitOfAnyMatrixOfAVariant) {
  for (const char* matrix : kMatrices) {
    const std::string said = found(GetParam(), [&](std::size_t variant, const Results& all) {
      const TensorView view = view_of(all, matrix);
      if (variant == 2) flip(view, view.rows - 1, view.cols - 1);
    });
    EXPECT_TRUE(contains(said, std::string("with the plan \"fused\", column_backward: ") + matrix +
                                   " differs from serial: "))
        << said;
  }
}

TEST_P(VerifyLayerCheck, FindsAWrongMatrixThatAllVariantsHave) {
  for (const char* matrix : kMatrices) {
    const std::string said = found(GetParam(), [&](std::size_t, const Results& all) {
      const TensorView view = view_of(all, matrix);
      for (std::int64_t row = 0; row < view.rows; ++row)  // because not all elements are sampled
        std::memset(view.row(row), 0x42, view.row_bytes());
    });
    EXPECT_TRUE(said.starts_with(std::string(matrix) + '[')) << said;
    EXPECT_TRUE(contains(said, " is 48.") && contains(said, " but the sum is ")) << said;
  }
}

// The findings of rank 1 if only a matrix of one rank that has the whole layer is damaged, in which
// all ranks have a part.
Findings found_beside_one_rank(const LayerCase& one, const char* which) {
  std::array<Findings, kRanks> all;
  run_in_threads(kRanks, [&](Communicator& comm) {
    const Spoil spoil = [&](std::size_t variant, const Results& results) {
      const TensorView view = view_of(results, which);
      const bool is_mine = variant == kOnOneRank && comm.rank() == 1;
      if (is_mine && view.rows > 0 && view.cols > 0) flip(view, view.rows - 1, view.cols - 1);
    };
    all[static_cast<std::size_t>(comm.rank())] = verify_case(one, comm, spoil);
  });
  EXPECT_EQ(all[0].failure, "");
  EXPECT_EQ(all[0].as_one, all[1].as_one);
  return all[1];
}

LayerCase some_equal_layer(bool row) {
  LayerCase one = some_layer(row);
  one.shares = {512, 512};
  one.m = 5;
  return one;
}

TEST_P(VerifyLayerCheck, FindsABitThatOneRankHasNot) {
  LayerCase plain = some_equal_layer(GetParam());
  LayerCase quantised = plain;
  quantised.scheme = parse_quant_scheme("s8:group=64");
  for (const LayerCase& one : {plain, quantised}) {
    for (const char* matrix : kMatrices) {
      const Findings found = found_beside_one_rank(one, matrix);
      EXPECT_TRUE(
          contains(found.failure, std::string(matrix) + " differs from that of one rank alone: "))
          << found.failure;
      EXPECT_TRUE(found.as_one);
    }
  }
}

// Only one of out and grad_x is a sum over ranks' shares.
TEST_P(VerifyLayerCheck, CountsNoSumThatWasNotAskedFor) {
  LayerCase one = some_equal_layer(GetParam());
  one.asks_x = false;
  EXPECT_EQ(found_beside_one_rank(one, "grad_x").as_one, GetParam());
  one = some_equal_layer(GetParam());
  one.wire = Dtype::f16;
  EXPECT_FALSE(found_beside_one_rank(one, "grad_weight").as_one);
}

TEST_P(VerifyLayerCheck, FindsABytePastTheEndOfARow) {
  for (const std::size_t spoilt : {0, 1}) {
    for (const char* matrix : kMatrices) {
      const std::string said = found(GetParam(), [&](std::size_t variant, const Results& all) {
        const TensorView view = view_of(all, matrix);
        if (variant == spoilt) flip(view, view.rows - 1, view.cols);
      });
      EXPECT_TRUE(contains(said, std::string("bytes around ") + matrix + " were written")) << said;
    }
  }
}

}  // namespace
}  // namespace plait::verify
