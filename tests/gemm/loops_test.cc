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

// Pieces of 512 k of leaves of two pieces each, or of one.
std::vector<Piece> pieces(std::int64_t first, std::int64_t count, bool add_up) {
  std::vector<Piece> all;
  for (std::int64_t at = first; at < first + count; ++at) {
    all.push_back({.group = at,
                   .begin = at * 512,
                   .length = 512,
                   .padded_begin = at * 512,
                   .starts = true,
                   .ends = true,
                   .leaf = add_up ? at / 2 : at,
                   .ends_leaf = !add_up || at % 2 == 1});
  }
  return all;
}

class LeafLoop : public Loop {
 protected:
  static constexpr std::int64_t kPieces = 16;
  static constexpr std::size_t kSlots = 5;

  // The sums of piece `at` are multiplied by scales[at] if they are added up, else by scales[0].
  std::vector<float> tree(std::int64_t begin, std::int64_t end) const {
    std::vector<float> sum(each_);
    if (end - begin > (add_up_ ? 2 : 1)) {
      const std::vector<float> left = tree(begin, (begin + end) / 2);
      const std::vector<float> right = tree((begin + end) / 2, end);
      for (std::size_t i = 0; i < each_; ++i) sum[i] = left[i] + right[i];
      return sum;
    }
    for (std::int64_t at = begin; at < end; ++at) {
      for (std::size_t i = 0; i < each_; ++i) {
        const std::size_t scale =
            (add_up_ ? static_cast<std::size_t>(at) * kPanelColumns : 0) + i % kPanelColumns;
        const float product =
            sums_[static_cast<std::size_t>(at) * each_ + i] * (scaled_ ? scales_[scale] : 1.0F);
        sum[i] = add_up_ ? sum[i] + product : product;
      }
    }
    return sum;
  }

  // With `at_once` pieces in a call; a slot's rows lie as those of a panel of several do.
  std::vector<float> by_loop(std::int64_t at_once, std::int64_t count) {
    const std::size_t stride = each_ + kPanelColumns;
    std::vector<float> slots(kSlots * stride, 7.0F);
    for (std::int64_t at = 0; at < count; at += at_once) {
      const std::vector<Piece> some = pieces(at, std::min(at_once, count - at), add_up_);
      set().add_to_leaves(
          {.pieces = some,
           .sums = sums_.data() + static_cast<std::size_t>(at) * each_,
           .scales = scaled_ ? scales_.data() + (add_up_ ? at * kPanelColumns : 0) : nullptr,
           .scales_step = add_up_ ? kPanelColumns : 0,
           .add_up = add_up_,
           .begins_leaf = !add_up_ || at % 2 == 0},
          static_cast<int>(each_ / kPanelColumns),
          {slots.data(), static_cast<std::int64_t>(stride)});
    }
    const std::int64_t leaves = add_up_ ? count / 2 : count;
    const auto whole =
        static_cast<std::ptrdiff_t>(static_cast<std::size_t>(Leaves::slot_of(leaves - 1)) * stride);
    return {slots.begin() + whole, slots.begin() + whole + static_cast<std::ptrdiff_t>(each_)};
  }

  std::size_t each_ = 0;  // floats of a piece's sums
  bool add_up_ = false;
  bool scaled_ = false;
  std::vector<float> sums_;
  std::vector<float> scales_;
};

TEST_P(LeafLoop, AddsPiecesUpAsATree) {
  for (const int rows : {1, 5}) {
    each_ = static_cast<std::size_t>(rows) * kPanelColumns;
    sums_ = floats(kPieces * each_);
    scales_ = floats(kPieces * kPanelColumns);
    for (const bool add_up : {false, true}) {
      add_up_ = add_up;
      for (const bool scaled : {add_up, true}) {
        scaled_ = scaled;
        for (std::int64_t count = 2; count <= kPieces; count *= 2) {
          for (const std::int64_t at_once : {1, 3, 16}) {
            EXPECT_EQ(by_loop(at_once, count), tree(0, count))
                << rows << " rows, " << count << " pieces, " << at_once << " at once"
                << (add_up ? ", added up" : "") << (scaled ? ", scaled" : "");
          }
        }
      }
    }
  }
}

// A chain starts from 0 and a sum does not: the sign of a zero tells them apart.
TEST_P(LeafLoop, StartsFromZeroWhereItAddsUp) {
  each_ = kPanelColumns;
  sums_.assign(2 * each_, -0.0F);
  for (const bool add_up : {false, true}) {
    add_up_ = add_up;
    EXPECT_EQ(std::signbit(by_loop(1, add_up ? 2 : 1).front()), !add_up);
  }
}

// Sums that become a leaf may lie in its slot.
TEST_P(LeafLoop, TakesALeafFromItsPlace) {
  constexpr int kRows = 5;
  constexpr std::size_t kEach = std::size_t{kRows} * kPanelColumns;
  std::vector<float> slots = floats(3 * kEach);
  const std::vector<float> scales = floats(kPanelColumns);
  std::vector<float> want(kEach);
  for (std::size_t i = 0; i < kEach; ++i) {
    const float leaf = slots[2 * kEach + i] * scales[i % kPanelColumns];
    want[i] = slots[kEach + i] + (slots[i] + leaf);
  }
  const std::vector<Piece> fourth = pieces(3, 1, /*add_up=*/false);
  set().add_to_leaves({.pieces = fourth,
                       .sums = &slots[2 * kEach],
                       .scales = scales.data(),
                       .scales_step = 0,
                       .add_up = false,
                       .begins_leaf = true},
                      kRows, {slots.data(), kEach});
  EXPECT_TRUE(std::equal(want.begin(), want.end(), slots.begin() + 2 * kEach));
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

std::string set_name(const testing::TestParamInfo<const Loops*>& set) { return set.param->name; }

INSTANTIATE_TEST_SUITE_P(Sets, Loop, testing::ValuesIn(loop_sets().begin(), loop_sets().end()),
                         set_name);
INSTANTIATE_TEST_SUITE_P(Sets, LeafLoop, testing::ValuesIn(loop_sets().begin(), loop_sets().end()),
                         set_name);

}  // namespace
}  // namespace plait::gemm
