#include "gemm/panels.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "gemm/kernels.h"
#include "gemm/matrix.h"
#include "tensor/copy.h"

namespace plait::gemm {
namespace {

// The index of an element in a packed panel: f32 row by row, others in pairs of k.
std::size_t place(Dtype dtype, std::int64_t k, std::int64_t column) {
  const std::int64_t at = dtype == Dtype::f32 ? k * kPanelColumns + column
                                              : k / 2 * 2 * kPanelColumns + column * 2 + k % 2;
  return static_cast<std::size_t>(at) * size_of(dtype);
}

// A weight of any bits, whose last element is the last that may be read.
class FencedWeight {
 public:
  FencedWeight(Dtype dtype, WeightLayout layout, std::int64_t n, std::int64_t k, std::int64_t gap)
      : rows_(layout == WeightLayout::out_in ? n : k),
        cols_(layout == WeightLayout::out_in ? k : n),
        stride_(cols_ + gap),
        memory_(static_cast<std::size_t>((rows_ - 1) * stride_ + cols_) * size_of(dtype)),
        view_{.view = {.data = memory_.data(),
                       .dtype = dtype,
                       .rows = rows_,
                       .cols = cols_,
                       .row_stride = stride_},
              .layout = layout} {
    std::mt19937 bits(static_cast<unsigned>(n * 1000 + k));
    const std::byte* end = memory_.data() + ((rows_ - 1) * stride_ + cols_) * bytes();
    for (std::byte* at = memory_.data(); at < end; ++at) *at = static_cast<std::byte>(bits());
  }

  const WeightView& view() const { return view_; }
  const std::byte* at(std::int64_t column, std::int64_t k) const {
    const bool out_in = view_.layout == WeightLayout::out_in;
    return memory_.data() + ((out_in ? column : k) * stride_ + (out_in ? k : column)) * bytes();
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(size_of(view_.view.dtype)); }

  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  Fenced memory_;
  WeightView view_;
};

// Element by element.
void pack_plainly(const FencedWeight& weight, const PanelPart& part, std::byte* to) {
  const Dtype dtype = weight.view().view.dtype;
  std::memset(to, 0, panel_bytes(storage_of(dtype), round_up(part.length, kKStep)));
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    const std::int64_t j = part.panel * kPanelColumns + column;
    for (std::int64_t k = 0; k < part.length && j < weight.view().n(); ++k)
      std::memcpy(to + place(dtype, k, column), weight.at(j, part.begin + k), size_of(dtype));
  }
}

class PackedPanels : public testing::TestWithParam<const Loops*> {
 protected:
  void SetUp() override {
    if (const char* reason = base::refusal(GetParam()->needs)) GTEST_SKIP() << reason;
  }

  // The last panel, written in both ways, and not a byte more.
  static void expect_packed(const FencedWeight& weight, std::int64_t begin, std::int64_t length) {
    const PanelPart part = {
        .panel = panels_of(weight.view().n()) - 1, .begin = begin, .length = length};
    const Dtype dtype = weight.view().view.dtype;
    const std::size_t bytes = panel_bytes(storage_of(dtype), round_up(length, kKStep));
    const Buffer want(bytes + 1);
    const Buffer got(bytes + 1);
    pack_plainly(weight, part, want.data());
    want.data()[bytes] = std::byte{77};
    for (const Stores stores : {Stores::cached, Stores::streamed}) {
      std::memset(got.data(), 77, got.bytes());
      pack_panel(weight.view(), part, got.data(), stores, *GetParam());
      tensor::stream_fence();
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.bytes()), 0)
          << name(dtype) << " " << name(weight.view().layout) << " n " << weight.view().n() << " k "
          << weight.view().k() << " from " << begin << " on " << length << ", stride "
          << weight.view().view.row_stride
          << (stores == Stores::streamed ? ", streamed" : ", cached");
    }
  }
};

TEST_P(PackedPanels, HoldTheWeightAndZerosBehindIt) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      for (const std::int64_t n : {1, 3, 8, 15, 17, 37, 60, 63, 64, 65, 101, 128}) {
        for (const std::int64_t length : {1, 2, 3, 7, 16, 31, 32, 33, 45, 64, 97, 160}) {
          for (const std::int64_t gap : {0, 1, 6}) {
            expect_packed({dtype, layout, n, length, gap}, 0, length);
            expect_packed({dtype, layout, n, length + 9, gap}, 6, length);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, PackedPanels,
                         testing::ValuesIn(loop_sets().begin(), loop_sets().end()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST(Panels, OfSixteenBitsAreWidened) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Matrix w(dtype, kPanelColumns, kKStep, 4);
    const Buffer packed(panel_bytes(storage_of(dtype), kKStep));
    pack_panel({w.view, WeightLayout::out_in}, {.panel = 0, .begin = 0, .length = kKStep},
               packed.data());
    const Buffer memory(panel_bytes(Storage::f32, kKStep));
    expand(storage_of(dtype), packed.data(), kKStep, nullptr, Dtype::f32, memory.data());
    const auto* wide = reinterpret_cast<const float*>(memory.data());
    for (std::int64_t k = 0; k < kKStep; ++k) {
      for (std::int64_t column = 0; column < kPanelColumns; ++column)
        ASSERT_EQ(wide[k * kPanelColumns + column], at(w.view, column, k));
    }
  }
}

// Two rows of k; of s4 the even k is in the low half.
TEST(Panels, OfValuesBecomeThemAndTheirOffsets) {
  constexpr std::size_t kColumns = kPanelColumns;
  std::array<std::int8_t, kColumns> offsets = {};
  alignas(64) std::array<std::int8_t, 2 * kColumns> bytes = {};
  alignas(64) std::array<std::int8_t, kColumns> halves = {};
  const auto value = [](std::size_t column, std::size_t k) {
    return static_cast<int>((column * 5 + k * 3) % 16) - 8;
  };
  for (std::size_t j = 0; j < kColumns; ++j) {
    offsets.at(j) = static_cast<std::int8_t>(static_cast<int>(j % 15) - 7);
    for (const std::size_t k : {0, 1}) bytes.at(2 * j + k) = static_cast<std::int8_t>(value(j, k));
    halves.at(j) = static_cast<std::int8_t>((value(j, 0) & 15) | (value(j, 1) & 15) << 4);
  }
  for (const bool shifted : {false, true}) {
    for (const Dtype operand : {Dtype::f32, Dtype::bf16}) {
      for (const auto& [storage, from] :
           {std::pair{Storage::s8, bytes.data()}, std::pair{Storage::s4, halves.data()}}) {
        alignas(64) std::array<float, 2 * kColumns> to = {};
        auto* out = reinterpret_cast<std::byte*>(to.data());
        expand(storage, reinterpret_cast<const std::byte*>(from), 2,
               shifted ? offsets.data() : nullptr, operand, out);
        for (std::size_t j = 0; j < kColumns; ++j) {
          for (const std::size_t k : {0, 1}) {
            float got = 0;
            convert(
                out + place(operand, static_cast<std::int64_t>(k), static_cast<std::int64_t>(j)),
                operand, &got, Dtype::f32, 1);
            ASSERT_EQ(got, value(j, k) + (shifted ? offsets.at(j) : 0)) << name(operand);
          }
        }
      }
    }
  }
}

TEST(Panels, AreTakenAsTheyAreStoredWhereThatIsTheOperand) {
  for (const Storage storage :
       {Storage::f32, Storage::bf16, Storage::f16, Storage::s8, Storage::s4}) {
    EXPECT_EQ(is_operand(storage, Dtype::f32), storage == Storage::f32);
    EXPECT_EQ(is_operand(storage, Dtype::bf16), storage == Storage::bf16);
  }
  EXPECT_EQ(panel_bytes(Storage::s4, 32), 32U * 64 / 2);
  EXPECT_EQ(panels_of(0), 0);
  EXPECT_EQ(panels_of(64), 1);
  EXPECT_EQ(panels_of(65), 2);
}

}  // namespace
}  // namespace plait::gemm
