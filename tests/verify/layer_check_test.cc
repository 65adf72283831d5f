// plait verify --layers notices wrong outputs and gradients of any kind.
#include "verify/layer_check.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "conformance/ranks.h"
#include "plait/communicator.h"

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
std::string found(bool row, const SpoilLayer& spoil) {
  std::array<std::string, kRanks> all;
  run_in_threads(kRanks, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] =
        verify_case(some_layer(row), comm, comm.rank() == 1 ? spoil : SpoilLayer()).failure;
  });
  EXPECT_EQ(all[0], "");
  return all[1];
}

// Flips the lowest bit of an element.
void flip(const TensorView& view, std::int64_t row, std::int64_t col) {
  auto* at = static_cast<std::byte*>(view.row(row)) + col * size_of(view.dtype);
  *at ^= std::byte{1};
}

struct Matrix {
  const char* name;
  TensorView LayerResults::* view;
};
constexpr std::array<Matrix, 4> kMatrices = {{{"out", &LayerResults::out},
                                              {"grad_x", &LayerResults::grad_x},
                                              {"grad_weight", &LayerResults::grad_weight},
                                              {"grad_bias", &LayerResults::grad_bias}}};

class VerifyLayerCheck : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Cli, VerifyLayerCheck, testing::Values(false, true),
                         [](const auto& one) { return one.param ? "Row" : "Column"; });

TEST_P(VerifyLayerCheck, FindsNothingWhereNothingIsWrong) { EXPECT_EQ(found(GetParam(), {}), ""); }

TEST_P(VerifyLayerCheck, FindsABitOfAnyMatrixOfAVariant) {
  for (const Matrix& matrix : kMatrices) {
    const std::string said = found(GetParam(), [&](std::size_t variant, const LayerResults& all) {
      const TensorView& view = all.*matrix.view;
      if (variant == 2) flip(view, view.rows - 1, view.cols - 1);
    });
    EXPECT_TRUE(contains(said, std::string("with the plan \"fused\", column_backward: ") +
                                   matrix.name + " differs from serial: "))
        << said;
  }
}

TEST_P(VerifyLayerCheck, FindsAWrongMatrixThatAllVariantsHave) {
  for (const Matrix& matrix : kMatrices) {
    const std::string said = found(GetParam(), [&](std::size_t, const LayerResults& all) {
      const TensorView& view = all.*matrix.view;
      for (std::int64_t row = 0; row < view.rows; ++row)  // because not all elements are sampled
        std::memset(view.row(row), 0x42, view.row_bytes());
    });
    EXPECT_TRUE(said.starts_with(std::string(matrix.name) + '[')) << said;
    EXPECT_TRUE(contains(said, " is 48.") && contains(said, " but the sum is ")) << said;
  }
}

// The findings of rank 1 if only a matrix of one rank that has the whole layer is damaged, in which
// all ranks have a part.
Findings found_beside_one_rank(const LayerCase& one, TensorView LayerResults::* which) {
  std::array<Findings, kRanks> all;
  run_in_threads(kRanks, [&](Communicator& comm) {
    const SpoilLayer spoil = [&](std::size_t variant, const LayerResults& results) {
      const TensorView& view = results.*which;
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
    for (const Matrix& matrix : kMatrices) {
      const Findings found = found_beside_one_rank(one, matrix.view);
      EXPECT_TRUE(contains(found.failure,
                           std::string(matrix.name) + " differs from that of one rank alone: "))
          << found.failure;
      EXPECT_TRUE(found.as_one);
    }
  }
}

// Only one of out and grad_x is a sum over ranks' shares.
TEST_P(VerifyLayerCheck, CountsNoSumThatWasNotAskedFor) {
  LayerCase one = some_equal_layer(GetParam());
  one.asks_x = false;
  EXPECT_EQ(found_beside_one_rank(one, &LayerResults::grad_x).as_one, GetParam());
  one = some_equal_layer(GetParam());
  one.wire = Dtype::f16;
  EXPECT_FALSE(found_beside_one_rank(one, &LayerResults::grad_weight).as_one);
}

TEST_P(VerifyLayerCheck, FindsABytePastTheEndOfARow) {
  for (const std::size_t spoilt : {0, 1}) {
    for (const Matrix& matrix : kMatrices) {
      const std::string said = found(GetParam(), [&](std::size_t variant, const LayerResults& all) {
        const TensorView& view = all.*matrix.view;
        if (variant == spoilt) flip(view, view.rows - 1, view.cols);
      });
      EXPECT_TRUE(contains(said, std::string("bytes around ") + matrix.name + " were written"))
          << said;
    }
  }
}

}  // namespace
}  // namespace plait::verify
