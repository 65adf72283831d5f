// Rows as codes of 8 bits with scales, by every set of kernels that this processor can run.
#include "tensor/coded_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "plait/error.h"
#include "tensor/kernels.h"

namespace plait::tensor {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr std::byte kUnwritten{0x5a};

using Row = std::vector<float>;
using Bytes = std::vector<std::byte>;

Row random_row(std::size_t n, float largest, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  Row row(n);
  for (float& value : row) value = number(random) * largest;
  return row;
}

// A group as the header defines it, one element at a time.
struct Group {
  float scale = 0;
  std::vector<int> codes;
};

Group coded(const float* from, std::size_t n) {
  const bool is_finite = std::all_of(from, from + n, [](float x) { return std::isfinite(x); });
  Group group = {.codes = std::vector<int>(n)};
  if (!is_finite) {
    group.scale = std::numeric_limits<float>::quiet_NaN();
    return group;
  }
  float largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(from[i]));
  group.scale = static_cast<float>(Bf16(std::fmax(largest / 127, kSmallestNormal)));
  const float inverse = 1 / group.scale;
  for (std::size_t i = 0; i < n; ++i)
    group.codes[i] = static_cast<int>(std::nearbyint(from[i] * inverse));
  return group;
}

// The bytes of a row: scales, then codes.
Bytes want(const Row& row) {
  Bytes scales;
  Bytes codes;
  for (std::size_t begin = 0; begin < row.size(); begin += kScaleGroup) {
    const Group group =
        coded(row.data() + begin, std::min<std::size_t>(kScaleGroup, row.size() - begin));
    const std::uint16_t bits = std::isnan(group.scale) ? 0xffc0 : Bf16(group.scale).bits;
    scales.push_back(static_cast<std::byte>(bits & 0xffU));
    scales.push_back(static_cast<std::byte>(bits >> 8U));
    for (const int code : group.codes) codes.push_back(static_cast<std::byte>(code));
  }
  scales.insert(scales.end(), codes.begin(), codes.end());
  return scales;
}

class CodedRows : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (const char* reason = base::refusal(GetParam()->needs)) GTEST_SKIP() << reason;
  }

  // The bytes of a row, which begins `shift` bytes off alignment, with the bytes around it.
  static Bytes encoded(const Row& row, std::size_t shift = 0) {
    const auto n = static_cast<std::int64_t>(row.size());
    const auto scales = static_cast<std::size_t>(2 * scales_of(n));
    Bytes block(shift + static_cast<std::size_t>(coded_bytes(1, n)) + 64, kUnwritten);
    std::byte* const to = block.data() + shift;
    GetParam()->encode({.codes = to + scales, .scales = to}, row.data(), row.size());
    return block;
  }

  static Row received(const Row& row, std::size_t shift = 0) {
    const Bytes block = encoded(row, shift);
    const auto scales =
        static_cast<std::size_t>(2 * scales_of(static_cast<std::int64_t>(row.size())));
    Row to(row.size() + 1, 5);
    GetParam()->decode(to.data(), block.data() + shift + scales, block.data() + shift, row.size());
    EXPECT_EQ(to.back(), 5) << "it wrote beyond the end";
    to.pop_back();
    return to;
  }

  static void expect_coded(const Row& row, std::size_t shift = 0) {
    Bytes expected(shift, kUnwritten);
    const Bytes middle = want(row);
    expected.insert(expected.end(), middle.begin(), middle.end());
    expected.resize(expected.size() + 64, kUnwritten);
    ASSERT_EQ(encoded(row, shift), expected) << row.size() << " elements, " << row[0] << "...";
  }

  // |x - received| <= (1/2 + 2^-16)·scale <= max(max |x| / 252, 2^-126)
  static void expect_near(const Row& row) {
    const Row got = received(row);
    for (std::size_t begin = 0; begin < row.size(); begin += kScaleGroup) {
      const std::size_t end = std::min<std::size_t>(begin + kScaleGroup, row.size());
      const Group group = coded(row.data() + begin, end - begin);
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i)
        largest = std::fmax(largest, std::fabs(double{row[i]}));
      const double bound = (0.5 + 0x1p-16) * group.scale;
      EXPECT_LE(bound, std::fmax(largest / 252, 0x1p-126));
      for (std::size_t i = begin; i < end; ++i) {
        ASSERT_LE(std::fabs(double{got[i]} - double{row[i]}), bound) << row[i] << " at " << i;
        ASSERT_EQ(got[i], group.scale * static_cast<float>(group.codes[i - begin]));
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, CodedRows,
                         testing::ValuesIn(std::vector<const Kernels*>(kernel_sets().begin(),
                                                                       kernel_sets().end())),
                         [](const auto& set) { return std::string(set.param->name); });

TEST_P(CodedRows, HaveTheBitsOfTheirDefinitionAtEveryLength) {
  for (std::size_t n = 1; n < 200; ++n) expect_coded(random_row(n, 10, unsigned(n)), n % 5);
}

TEST_P(CodedRows, HaveThemAtEveryMagnitude) {
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (unsigned seed = 0; seed < 4; ++seed)
      expect_coded(random_row(130, std::ldexp(1.0F, exponent), seed));
  }
}

TEST_P(CodedRows, AreWithinTheBound) {
  for (int exponent = -149; exponent < 128; exponent += 3) {
    for (unsigned seed = 0; seed < 4; ++seed)
      expect_near(random_row(150, std::ldexp(1.0F, exponent), seed));
  }
  // The largest quotients: scales that were rounded down most, and up.
  for (int step = 0; step < 4096; ++step)
    expect_near({1.0F + std::ldexp(static_cast<float>(step), -12), 0.4F, -1, -0.004F});
}

TEST_P(CodedRows, AreOfRandomBits) {
  std::mt19937 random(7);
  Row row(70'001);
  for (float& value : row) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  expect_coded(row, 1);
}

TEST_P(CodedRows, KeepZerosAndTinyNumbers) {
  EXPECT_EQ(received(Row(100, 0.0F)), Row(100, 0.0F));
  EXPECT_EQ(received(Row(3, -0.0F)), Row(3, 0.0F));
  expect_coded({kSmallest, -kSmallest, kSmallestNormal, 0});
  // Below 2^-127 they are received as zeros, as multiples of 2^-126 else.
  EXPECT_EQ(received({kSmallest, kSmallestNormal, -3 * kSmallestNormal}),
            (Row{0, kSmallestNormal, -3 * kSmallestNormal}));
}

TEST_P(CodedRows, KeepTheLargestNumbersFinite) {
  for (const float largest : {kLargest, 0x1.fcp127F, 0x1.fap127F, 0x1.0p127F}) {
    const Row row = {largest, -largest, 1};
    expect_coded(row);
    for (const float value : received(row)) EXPECT_TRUE(std::isfinite(value)) << largest;
  }
}

TEST_P(CodedRows, TiesGoToEven) {
  // The scale is 1.
  EXPECT_EQ(received({127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 125.5F, 126.5F}),
            (Row{127, 0, 2, 2, 0, -2, -2, 126, 126}));
}

TEST_P(CodedRows, ShowAnInfinityOrANanInItsGroupOnly) {
  for (const float broken : {kInfinite, -kInfinite, std::numeric_limits<float>::quiet_NaN(),
                             std::bit_cast<float>(0xff800001U)}) {
    for (const std::size_t n : {3U, 64U, 65U, 200U}) {
      for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
        Row row = random_row(n, 3, 5);
        const Row whole = received(row);
        row[at] = broken;
        expect_coded(row);
        const Row got = received(row);
        for (std::size_t i = 0; i < n; ++i) {
          const bool same = i / kScaleGroup == at / kScaleGroup;
          const std::uint32_t bits = same ? kNan : std::bit_cast<std::uint32_t>(whole[i]);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), bits) << broken << " at " << at;
        }
      }
    }
  }
}

TEST_P(CodedRows, ReadAndWriteNothingBeyondTheirEnds) {
  // Vectors have the exact size, so that the address sanitizer notices one byte too many.
  for (const std::size_t n : {1U, 7U, 15U, 17U, 63U, 65U, 127U, 131U}) {
    const Row row = random_row(n, 3, 5);
    Bytes codes(n);
    Bytes scales(static_cast<std::size_t>(2 * scales_of(static_cast<std::int64_t>(n))));
    Row to(n);
    GetParam()->encode({.codes = codes.data(), .scales = scales.data()}, row.data(), n);
    GetParam()->decode(to.data(), codes.data(), scales.data(), n);
    EXPECT_EQ(to, received(row));
  }
}

// Pieces of a block are what its rows would be alone, wherever a row or a group begins.
TEST(CodedBlock, IsReadInPieces) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kColumns = 333;
  const Row all = random_row(kRows * 400, 9, 3);
  const ConstTensorView view = {
      .data = all.data(), .dtype = Dtype::f32, .rows = kRows, .cols = kColumns, .row_stride = 400};
  const CodedShape shape = {.rows = kRows, .columns = kColumns};
  Bytes block(static_cast<std::size_t>(coded_bytes(kRows, kColumns)) + 1, kUnwritten);
  encode_rows(view, block.data());
  EXPECT_EQ(block.back(), kUnwritten);
  Bytes in_shares(block.size(), kUnwritten);
  encode_rows(view.row_range(2, kRows), shape, 2, in_shares.data());
  encode_rows(view.row_range(0, 2), shape, 0, in_shares.data());
  EXPECT_EQ(in_shares, block);
  for (std::int64_t row = 0; row < kRows; ++row) {
    Row want(kColumns);
    round_as_coded(static_cast<const float*>(view.row(row)), want.data(), kColumns);
    for (const std::int64_t column : {0, 64, 256, 320}) {
      for (const std::int64_t n : {1, 13}) {
        Row got(static_cast<std::size_t>(n));
        decode(block.data(), shape, {.row = row, .column = column, .n = n}, got.data());
        EXPECT_EQ(std::memcmp(got.data(), want.data() + column, got.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST(CodedBlock, TakesAQuarterOfTheBytesAndThreePercent) {
  EXPECT_EQ(coded_bytes(10, 640), 10 * 640 + 10 * 10 * 2);
  EXPECT_EQ(coded_bytes(10, 641), 10 * 641 + 10 * 11 * 2);
  EXPECT_EQ(coded_bytes(10, 1), 30);
  EXPECT_EQ(coded_bytes(10, 0), 0);
}

TEST(CodedBlock, IsMadeOfF32) {
  const Bf16 value(1);
  Bytes block(16);
  EXPECT_THROW(
      encode_rows({.data = &value, .dtype = Dtype::bf16, .rows = 1, .cols = 1, .row_stride = 1},
                  block.data()),
      Error);
}

}  // namespace
}  // namespace plait::tensor
