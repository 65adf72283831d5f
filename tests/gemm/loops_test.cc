// Every set of loops gives the bits of the portable one.
#include "gemm/loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "gemm/extremes.h"

namespace plait::gemm {
namespace {

class Loop : public testing::TestWithParam<const Loops*> {
 protected:
  void SetUp() override {
    if (const char* reason = base::refusal(GetParam()->needs)) GTEST_SKIP() << reason;
  }
  const Loops& set() const { return *GetParam(); }

  template <class T>
  std::vector<T> random(std::size_t n) {
    std::vector<T> values(n);
    for (T& value : values) value = static_cast<T>(bits_());
    return values;
  }
  std::vector<float> floats(std::size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = std::uniform_real_distribution<float>(-2, 2)(bits_);
    return values;
  }

 private:
  std::mt19937 bits_{17};
};

TEST_P(Loop, TurnsWordsOver) {
  for (const std::int64_t rows : {1, 15, 16, 17, 64}) {
    for (const std::int64_t cols : {1, 7, 16, 33, 100}) {
      const auto from = random<std::uint32_t>(static_cast<std::size_t>(rows * (cols + 3)));
      const Words words = {reinterpret_cast<const std::byte*>(from.data()), (cols + 3) * 4, rows,
                           cols};
      std::vector<std::uint32_t> got(static_cast<std::size_t>(cols * (rows + 5)), 7);
      std::vector<std::uint32_t> want = got;
      set().transpose(words, got.data(), rows + 5, Stores::cached);
      portable_loops().transpose(words, want.data(), rows + 5, Stores::cached);
      EXPECT_EQ(got, want) << rows << " x " << cols;
      EXPECT_EQ(want[0], from[0]);
      EXPECT_EQ(want.at(static_cast<std::size_t>((cols - 1) * (rows + 5))),
                from[static_cast<std::size_t>(cols - 1)]);
    }
  }
}

TEST_P(Loop, PutsPairsTogether) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{16}, std::size_t{63}, std::size_t{64}}) {
    const auto even = random<std::uint16_t>(n);
    const auto odd = random<std::uint16_t>(n);
    std::vector<std::uint32_t> got(n + 1, 7);
    set().interleave(even.data(), odd.data(), static_cast<std::int64_t>(n), got.data(),
                     Stores::cached);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(got[i], even[i] | std::uint32_t{odd[i]} << 16);
    EXPECT_EQ(got[n], 7U);
  }
}

TEST_P(Loop, WidensPairs) {
  constexpr std::int64_t kDepth = 64;
  const auto pairs = random<std::uint32_t>(kDepth / 2 * kPanelColumns);
  for (const auto widen : {&Loops::widen_bf16, &Loops::widen_f16}) {
    std::vector<float> got(kDepth * kPanelColumns);
    std::vector<float> want(got.size());
    (set().*widen)(pairs.data(), kDepth, got.data());
    (portable_loops().*widen)(pairs.data(), kDepth, want.data());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
  }
}

TEST_P(Loop, ReadsQuantisedValues) {
  constexpr std::int64_t kDepth = 64;
  const auto values = random<std::int8_t>(kDepth * kPanelColumns);
  const auto offsets = random<std::int8_t>(kPanelColumns);
  for (const std::int8_t* offset :
       std::initializer_list<const std::int8_t*>{nullptr, offsets.data()}) {
    for (const auto read : {&Loops::s8_to_f32, &Loops::s4_to_f32}) {
      std::vector<float> got(kDepth * kPanelColumns);
      std::vector<float> want(got.size());
      (set().*read)(values.data(), kDepth, offset, got.data());
      (portable_loops().*read)(values.data(), kDepth, offset, want.data());
      EXPECT_EQ(got, want);
      EXPECT_EQ(want[0], (read == &Loops::s8_to_f32 ? values[0] : (values[0] << 28) >> 28) +
                             (offset == nullptr ? 0 : offset[0]));
    }
    for (const auto read : {&Loops::s8_to_bf16, &Loops::s4_to_bf16}) {
      std::vector<std::uint32_t> got(kDepth / 2 * kPanelColumns);
      std::vector<std::uint32_t> want(got.size());
      (set().*read)(values.data(), kDepth, offset, got.data());
      (portable_loops().*read)(values.data(), kDepth, offset, want.data());
      EXPECT_EQ(got, want);
    }
  }
}

TEST_P(Loop, AddsScaledParts) {
  for (const int rows : {1, 5}) {
    const std::int64_t each = std::int64_t{rows} * kPanelColumns;
    const auto parts = floats(3 * each);
    const auto scales = floats(3 * kPanelColumns);
    const auto node = floats(each);
    const auto other_node = floats(each);
    for (const bool first : {true, false}) {
      for (const int count : {0, 2}) {
        auto got = floats(each);
        auto want = got;
        set().add_scaled({.parts = parts.data(),
                          .scales = scales.data(),
                          .groups = 3,
                          .first = first,
                          .nodes = {.of = {node.data(), other_node.data()}, .count = count}},
                         rows, got.data());
        for (std::size_t i = 0; i < want.size(); ++i) {
          if (first) want[i] = 0;
          for (std::size_t g = 0; g < 3; ++g) {
            const float scale = scales[g * kPanelColumns + i % kPanelColumns];
            const float product = parts[g * want.size() + i] * scale;
            want[i] += product;
          }
          if (count > 0) want[i] = other_node[i] + (node[i] + want[i]);
        }
        EXPECT_EQ(got, want) << rows << " rows, " << count << " nodes";
      }
    }
  }
}

// Rows of an output that is wider than they, so that what lies beside them can be looked at.
class Target {
 public:
  Target(Dtype dtype, std::int64_t rows, std::int64_t cols)
      : memory_(static_cast<std::size_t>(rows * kStride) * size_of(dtype) / 2, 0x3c00),
        view_{.data = memory_.data(),
              .dtype = dtype,
              .rows = rows,
              .cols = cols,
              .row_stride = kStride} {}

  const TensorView& view() const { return view_; }
  const std::vector<std::uint16_t>& memory() const { return memory_; }

 private:
  static constexpr std::int64_t kStride = kPanelColumns + 2;

  std::vector<std::uint16_t> memory_;  // whatever is there before: small numbers in every dtype
  TensorView view_;
};

TEST_P(Loop, FinishesRows) {
  constexpr std::int64_t kRows = 3;
  const auto sums = floats(kRows * kPanelColumns);
  const auto scales = floats(kPanelColumns);
  const auto bias = floats(kPanelColumns);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (int variant = 0; variant < 8; ++variant) {
      const Finish how = {.scales = (variant & 1) != 0 ? scales.data() : nullptr,
                          .bias = (variant & 2) != 0 ? bias.data() : nullptr,
                          .accumulate = (variant & 4) != 0};
      for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, kRows}) {
        for (const std::int64_t n : {0, 1, 16, 37, 64}) {
          const Target untouched(dtype, rows, n);
          Target got(dtype, rows, n);
          Target want(dtype, rows, n);
          set().finish(how, sums.data(), got.view());
          portable_loops().finish(how, sums.data(), want.view());
          EXPECT_EQ(got.memory(), want.memory())
              << name(dtype) << " variant " << variant << " rows " << rows << " n " << n;
          EXPECT_EQ(rows * n > 0, got.memory() != untouched.memory());
        }
      }
    }
  }
}

TEST_P(Loop, EndsLeaves) {
  constexpr std::int64_t kRows = 5;
  const auto scales = floats(kPanelColumns);
  std::vector<std::vector<float>> below;
  below.reserve(4);
  for (int node = 0; node < 4; ++node) below.push_back(floats(kRows * kPanelColumns));
  const std::vector<float> leaf = floats(kRows * kPanelColumns);
  for (const bool scaled : {false, true}) {
    for (int count = 0; count <= 4; ++count) {
      std::vector<float> want = leaf;
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (scaled) want[i] *= scales[i % kPanelColumns];
        for (int node = 0; node < count; ++node)
          want[i] += below[static_cast<std::size_t>(node)][i];
      }
      Nodes nodes = {.count = count};
      for (std::size_t node = 0; node < 4; ++node) nodes.of[node] = below[node].data();
      const float* const by = scaled ? scales.data() : nullptr;
      std::vector<float> got = leaf;
      set().end_leaf(nodes, by, kRows, got.data(), got.data());
      EXPECT_EQ(got, want) << count << " nodes";
      std::vector<float> elsewhere(leaf.size());
      set().end_leaf(nodes, by, kRows, leaf.data(), elsewhere.data());
      EXPECT_EQ(elsewhere, want) << count << " nodes, elsewhere";
    }
  }
}

// The operations before the rounding meet the same.
TEST_P(Loop, FinishesWhatIsNotFinite) {
  const std::vector<float> sums = extremes();
  std::vector<float> others = sums;
  std::rotate(others.begin(), others.begin() + 21, others.end());
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    std::vector<std::byte> before(kPanelColumns * size_of(dtype));
    convert(others.data(), Dtype::f32, before.data(), dtype, others.size());
    for (int variant = 0; variant < 8; ++variant) {
      const Finish how = {.scales = (variant & 1) != 0 ? others.data() : nullptr,
                          .bias = (variant & 2) != 0 ? others.data() : nullptr,
                          .accumulate = (variant & 4) != 0};
      std::vector<std::byte> got = before;
      std::vector<std::byte> want = before;
      TensorView out = {.data = got.data(),
                        .dtype = dtype,
                        .rows = 1,
                        .cols = kPanelColumns,
                        .row_stride = kPanelColumns};
      set().finish(how, sums.data(), out);
      out.data = want.data();
      portable_loops().finish(how, sums.data(), out);
      for (std::size_t j = 0; j < kPanelColumns; ++j) {
        const std::size_t at = j * size_of(dtype);
        EXPECT_EQ(std::memcmp(&got[at], &want[at], size_of(dtype)), 0)
            << name(dtype) << " variant " << variant << " of " << std::hex
            << std::bit_cast<std::uint32_t>(sums[j]);
        float finished = 0;
        convert(&want[at], dtype, &finished, Dtype::f32, 1);
        EXPECT_TRUE(!std::isnan(sums[j]) || std::isnan(finished));
        if (std::isnan(finished)) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(finished), 0xffc00000U);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Loop, testing::ValuesIn(loop_sets().begin(), loop_sets().end()),
                         [](const auto& set) { return std::string(set.param->name); });

}  // namespace
}  // namespace plait::gemm
