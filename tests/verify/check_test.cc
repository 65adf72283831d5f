// plait verify notices every kind of wrong result, and describes it.
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

VerifyCase some_case() {
  return {.seed = 11,
          .op = Operator::all_gather_matmul,
          .m = 21,
          .n = {70, 70},
          .k = {33, 33},
          .x = Dtype::bf16,
          .weight = Dtype::bf16,
          .out = Dtype::bf16,
          .gathered = true,
          .plans = {parse_plan("pipelined parts=3"), parse_plan("fused")},
          .threads = {1, 1, 1}};
}

// The messages of all ranks when rank 1's results are damaged.
std::array<std::string, kRanks> found(const Spoil& spoil) {
  std::array<std::string, kRanks> all;
  run_in_threads(kRanks, [&](Communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] =
        verify_case(some_case(), comm, comm.rank() == 1 ? spoil : Spoil()).failure;
  });
  EXPECT_EQ(all[0], "");
  return all;
}

TEST(VerifyCheck, FindsNothingWhereNothingIsWrong) { EXPECT_EQ(found({})[1], ""); }

TEST(VerifyCheck, FindsABitOfAGroupedProduct) {
  VerifyCase one = some_case();
  one.op = Operator::matmul;
  one.gathered = false;
  one.plans.clear();
  run_in_threads(kRanks, [&](Communicator& comm) {
    const std::string found =
        verify_case(one, comm, [&](std::size_t variant, const Results& results) {
          if (variant == kInGroups && comm.rank() == 1) flip(view_of(results, "out"), 20, 69);
        }).failure;
    const std::string wanted = "out differs from a product for each group";
    EXPECT_EQ(contains(found, wanted), comm.rank() == 1) << found;
  });
}

TEST(VerifyCheck, FindsABitOfAPlan) {
  const auto all = found([](std::size_t plan, const Results& results) {
    if (plan == 2) flip(view_of(results, "out"), 20, 69);
  });
  EXPECT_TRUE(contains(all[1], "with the plan \"fused\": out differs from serial")) << all[1];
}

TEST(VerifyCheck, FindsAWrongSumThatAllPlansHave) {
  const auto all = found([](std::size_t, const Results& results) {
    const TensorView out = view_of(results, "out");
    for (std::int64_t row = 0; row < out.rows; ++row)  // because not all elements are sampled
      std::memset(out.row(row), 0x42, out.row_bytes());
  });
  EXPECT_TRUE(contains(all[1], "] is 48.5 but the sum is ")) << all[1];
}

// One rank sums in another order, in every plan, so no sum is far off.
TEST(VerifyCheck, FindsALastBitThatAllPlansOfOneRankHave) {
  const auto all =
      found([](std::size_t, const Results& results) { flip(view_of(results, "out"), 3, 5); });
  EXPECT_TRUE(contains(all[1], "out differs from its steps by one rank alone: ")) << all[1];
  EXPECT_TRUE(contains(all[1], "[3, 5]")) << all[1];
}

TEST(VerifyCheck, FindsABytePastTheEndOfARow) {
  for (const std::size_t spoilt : {0, 1}) {
    const auto all = found([&](std::size_t plan, const Results& results) {
      const TensorView out = view_of(results, "out");
      if (plan == spoilt) flip(out, 3, out.cols);
    });
    EXPECT_TRUE(contains(all[1], "bytes around out were written")) << all[1];
  }
}

// A sum of NaNs must be a NaN, even if all plans agree on something else.
TEST(VerifyCheck, FindsANumberWhereThereIsNone) {
  VerifyCase one = some_case();
  one.numbers = Numbers::broken;
  one.modes = true;
  one.two_groups = true;
  one.k = {400, 400};
  one.m = 3;
  one.n = {60, 60};
  one.gathered = false;
  const auto run = [&](const Spoil& spoil) {
    std::array<std::string, kRanks> all;
    run_in_threads(kRanks, [&](Communicator& comm) {
      all[static_cast<std::size_t>(comm.rank())] = verify_case(one, comm, spoil).failure;
    });
    return all;
  };
  EXPECT_EQ(run({})[0], "");
  const auto all = run([&](std::size_t, const Results& results) {
    const TensorView out = view_of(results, "out");
    for (std::int64_t row = 0; row < out.rows; ++row) {
      auto* bits = static_cast<std::uint16_t*>(out.row(row));
      for (std::int64_t col = 0; col < out.cols; ++col) {
        if ((bits[col] & 0x7fff) > 0x7f80) bits[col] = 0;
      }
    }
  });
  EXPECT_TRUE(contains(all[0], "] is 0 but the sum is not a number")) << all[0];
}

// A sum over ranks that must have the bits of one rank.
VerifyCase some_sum() {
  return {.seed = 12,
          .op = Operator::matmul_all_reduce,
          .m = 5,
          .n = {70, 70},
          .k = {1024, 1024},
          .plans = {parse_plan("fused")},
          .threads = {1, 1}};
}

// The findings of rank 1 if only the result of one rank that has all k is damaged.
Findings found_beside_one_rank(const VerifyCase& one) {
  std::array<Findings, kRanks> all;
  run_in_threads(kRanks, [&](Communicator& comm) {
    const Spoil spoil = [&](std::size_t plan, const Results& results) {
      const TensorView out = view_of(results, "out");
      if (plan == kOnOneRank && comm.rank() == 1 && out.rows > 3) flip(out, 3, 5);
    };
    all[static_cast<std::size_t>(comm.rank())] = verify_case(one, comm, spoil);
  });
  EXPECT_EQ(all[0].failure, "");
  EXPECT_EQ(all[0].as_one, all[1].as_one);
  return all[1];
}

TEST(VerifyCheck, FindsABitThatOneRankHasNot) {
  const Findings found = found_beside_one_rank(some_sum());
  EXPECT_TRUE(
      contains(found.failure,
               "out differs from what one rank makes that has all k: first difference at [3, 5]"))
      << found.failure;
  EXPECT_TRUE(found.as_one);
}

TEST(VerifyCheck, ComparesNoSumWithOneRankWhereItMayDiffer) {
  VerifyCase other = some_sum();
  other.k = {1024, 992};
  VerifyCase narrow = some_sum();
  narrow.wire = Dtype::bf16;
  VerifyCase nothing = some_sum();
  nothing.m = 0;
  for (const VerifyCase& one : {other, narrow, nothing, some_case()}) {
    const Findings found = found_beside_one_rank(one);
    EXPECT_EQ(found.failure, "");
    EXPECT_FALSE(found.as_one);
  }
}

TEST(VerifyCheck, FindsAWrongGatheredX) {
  for (const std::size_t spoilt : {0, 1}) {
    const auto all = found([&](std::size_t plan, const Results& results) {
      if (plan == spoilt) flip(view_of(results, "gathered"), 0, 0);
    });
    EXPECT_TRUE(contains(
        all[1], spoilt == 0 ? "gathered differs from the shards" : "gathered differs from serial"))
        << all[1];
  }
}

TEST(VerifyCheck, FindsBytesAroundAGatheredX) {
  const auto all = found([](std::size_t plan, const Results& results) {
    const TensorView gathered = view_of(results, "gathered");
    if (plan == 1) flip(gathered, 20, gathered.cols + 1);
  });
  EXPECT_TRUE(contains(all[1], "bytes around gathered were written")) << all[1];
}

}  // namespace
}  // namespace plait::verify
