#include "gemm/panels.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <utility>

#include "gemm/matrix.h"

namespace plait::gemm {
namespace {

// Where an element of a packed panel is: f32 row by row, others in pairs of k.
std::size_t place(Dtype dtype, std::int64_t k, std::int64_t column) {
  const std::int64_t at = dtype == Dtype::f32 ? k * kPanelColumns + column
                                              : k / 2 * 2 * kPanelColumns + column * 2 + k % 2;
  return static_cast<std::size_t>(at) * size_of(dtype);
}

// A panel that is not full, from a k on that is not the first.
void expect_packed(Dtype dtype, WeightLayout layout, std::int64_t length) {
  constexpr std::int64_t kN = kPanelColumns + 37;
  constexpr std::int64_t kK = 70;
  constexpr std::int64_t kBegin = 6;
  const bool out_in = layout == WeightLayout::out_in;
  const Matrix w(dtype, out_in ? kN : kK, out_in ? kK : kN, 3);
  const std::int64_t padded = round_up(length, kKStep);
  const Buffer memory(panel_bytes(storage_of(dtype), padded));
  std::memset(memory.data(), 0xff, memory.bytes());
  pack_panel({w.view, layout}, {.panel = 1, .begin = kBegin, .length = length}, memory.data());
  for (std::int64_t k = 0; k < padded; ++k) {
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      const std::int64_t j = kPanelColumns + column;
      const bool there = k < length && j < kN;
      float packed = -1;
      convert(memory.data() + place(dtype, k, column), dtype, &packed, Dtype::f32, 1);
      const std::int64_t i = kBegin + k;
      ASSERT_EQ(packed, !there   ? 0
                        : out_in ? at(w.view, j, i)
                                 : at(w.view, i, j))
          << name(dtype) << " " << name(layout) << ", k " << k << ", column " << column;
    }
  }
}

TEST(Panels, HoldTheWeightInBothLayoutsAndZerosBehindIt) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      for (const std::int64_t length : {1, 32, 45, 64}) expect_packed(dtype, layout, length);
    }
  }
}

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
