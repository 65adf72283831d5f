// How a quantised weight lies in panels, and how k is cut.
#include "gemm/quant_panels.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gemm/panel_blocks.h"
#include "plait/packed_weight.h"
#include "quant/weights.h"

namespace plait::gemm {
namespace {

float weight_of(std::int64_t column, std::int64_t k) {
  return static_cast<float>((column * 37 + k * 101) % 211 - 90);
}

// Value, offset and scale of one place of a panel, also where it is padding.
struct Packed {
  int value;
  int offset;
  float scale;
};

Packed packed_at(const PackedWeight& weight, std::int64_t column, std::int64_t group,
                 std::int64_t padded_k) {
  const std::int64_t panel = column / kPanelColumns;
  const std::int64_t j = column % kPanelColumns;
  const std::int64_t pair = padded_k / 2 * kPanelColumns + j;
  const std::byte* bytes = weight.panel(panel);
  int value = 0;
  if (weight.scheme()->bits == 8) {
    value = (std::to_integer<int>(bytes[2 * pair + padded_k % 2]) ^ 128) - 128;
  } else {
    const int half = std::to_integer<int>(bytes[pair]) >> (4 * (padded_k % 2)) & 15;
    value = (half ^ 8) - 8;
  }
  const std::int8_t* offsets = weight.offsets(group, panel);
  return {.value = value,
          .offset = offsets == nullptr ? 0 : offsets[j],
          .scale = weight.scales(group, panel)[j]};
}

TEST(QuantPanels, HoldTheWeightAndZerosAroundIt) {
  for (const std::int64_t group : {1, 3, 32, 33, 1000}) {
    for (const QuantScheme& scheme : all_schemes(group)) {
      for (const std::int64_t n : {1, 64, 71}) {
        const std::int64_t k = 257;
        const OwnedWeight owned = make_weight(n, k, weight_of);
        const QuantizedWeight weight = quantize(owned.view(), scheme);
        const PackedWeight packed(weight, 2);
        const Depth depth = depth_of(scheme, k);
        for (std::int64_t column = 0; column < round_up(n, kPanelColumns); ++column) {
          for (std::int64_t g = 0; g < depth.groups(); ++g) {
            for (std::int64_t i = 0; i < round_up(depth.length(g), kKStep); ++i) {
              const Packed got = packed_at(packed, column, g, depth.padded_begin(g) + i);
              const bool there = column < n && i < depth.length(g);
              const std::int64_t at = depth.begin(g) + i;
              ASSERT_EQ(got.value, there ? weight.value(column, at) : 0)
                  << name(scheme) << " n " << n << " column " << column << " k " << at;
              if (column >= n) {
                ASSERT_EQ(got.offset, 0);
                ASSERT_EQ(got.scale, 0);
              } else if (there) {
                ASSERT_EQ(got.offset, weight.offset(column, at));
                ASSERT_EQ(got.scale, weight.scale(column, at));
              }
            }
          }
        }
      }
    }
  }
}

TEST(QuantPanels, SayHowMuchAProductReads) {
  const OwnedWeight owned = make_weight(128, 256, weight_of);
  const auto bytes = [&](const char* scheme) {
    return PackedWeight(quantize(owned.view(), *parse_quant_scheme(scheme))).bytes();
  };
  EXPECT_EQ(PackedWeight(owned.view()).bytes(), 128U * 256 * 4);
  EXPECT_EQ(bytes("s8:channel"), 128U * 256 + 128 * 4);
  EXPECT_EQ(bytes("s4:group=64:offsets"), 128U * 256 / 2 + 4 * 128 * 5);
}

// Columns are padded to whole panels, and the k of every group to whole steps.
TEST(QuantPanels, TakeAsManyBytesAsIsSaidBefore) {
  for (const auto& [n, k] :
       {std::pair{0, 5}, std::pair{5, 0}, std::pair{1, 1}, std::pair{200, 70}}) {
    const OwnedWeight owned = make_weight(n, k, weight_of);
    GemmDesc desc = {.m = 1, .n = n, .k = k, .weight = Dtype::f32};
    EXPECT_EQ(packed_bytes(desc), PackedWeight(owned.view()).bytes()) << name(desc);
    for (const std::int64_t group : {1, 33, 64}) {
      for (const QuantScheme& scheme : all_schemes(group)) {
        desc.quant = scheme;
        EXPECT_EQ(packed_bytes(desc), PackedWeight(quantize(owned.view(), scheme)).bytes())
            << name(desc);
      }
    }
  }
  const GemmDesc ones = {.m = 1, .n = 64, .k = 10, .quant = parse_quant_scheme("s8:group=1")};
  EXPECT_EQ(packed_bytes(ones), std::size_t{64} * 10 * (32 + sizeof(float)));
}

}  // namespace
}  // namespace plait::gemm
