// A weight that is packed again, into the memory that it has.
#include "plait/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "gemm/panels.h"
#include "plait/error.h"
#include "quant/scheme.h"
#include "quant/weights.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

float one(std::int64_t column, std::int64_t k) {
  return static_cast<float>((column * 37 + k * 101) % 211 - 90);
}
float another(std::int64_t column, std::int64_t k) { return 1 - one(k, column); }

void expect_same(const PackedWeight& got, const PackedWeight& want) {
  ASSERT_EQ(got.bytes(), want.bytes());
  const std::int64_t panels = gemm::panels_of(want.n());
  std::size_t parts = 0;  // bytes of scales and offsets
  if (want.scheme()) {
    const auto values =
        static_cast<std::size_t>(panels * quant::group_count(*want.scheme(), want.k()) * 64);
    parts = values * (sizeof(float) + (want.scheme()->offsets ? 1 : 0));
    EXPECT_EQ(std::memcmp(got.scales(0, 0), want.scales(0, 0), values * sizeof(float)), 0);
    if (want.scheme()->offsets) {
      EXPECT_EQ(std::memcmp(got.offsets(0, 0), want.offsets(0, 0), values), 0);
    }
  }
  if (want.bytes() > 0) {
    EXPECT_EQ(std::memcmp(got.panel(0), want.panel(0), want.bytes() - parts), 0);
  }
}

// The larger ones are written past the caches.
TEST(PackedWeights, AreTheSameWhenPackedAgain) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    using Size = std::pair<std::int64_t, std::int64_t>;
    for (const auto& [n, k] :
         {Size{1, 1}, Size{0, 3}, Size{3, 0}, Size{130, 1027}, Size{1100, 1029}}) {
      for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
        const Lie lie = {.dtype = dtype, .layout = layout, .gap = 5};
        const OwnedWeight before = make_weight(n, k, one, {.dtype = dtype});
        const OwnedWeight after = make_weight(n, k, another, lie);
        PackedWeight packed(before.view());
        const std::byte* memory = packed.panel(0);
        packed.repack(after.view(), 2);
        EXPECT_EQ(packed.panel(0), memory);
        expect_same(packed, PackedWeight(after.view(), 3));
        for (std::int64_t column = 0; column < n && k > 0 && dtype == Dtype::f32; column += 129) {
          const auto* panel = reinterpret_cast<const float*>(packed.panel(column / 64));
          EXPECT_EQ(panel[(k - 1) * 64 + column % 64], another(column, k - 1));
        }
      }
    }
  }
}

TEST(PackedWeights, AreTheSameWhenPackedAgainFromValues) {
  for (const QuantScheme& scheme : all_schemes(33)) {
    const QuantizedWeight before = quantize(make_weight(130, 257, one).view(), scheme);
    const QuantizedWeight after = quantize(make_weight(130, 257, another).view(), scheme);
    PackedWeight packed(before);
    const std::byte* memory = packed.panel(0);
    packed.repack(after, 2);
    EXPECT_EQ(packed.panel(0), memory);
    expect_same(packed, PackedWeight(after, 3));
  }
}

TEST(PackedWeights, RefuseAnotherKindOfWeight) {
  const OwnedWeight f32 = make_weight(70, 90, one);
  const QuantizedWeight s8 = quantize(f32.view(), *parse_quant_scheme("s8"));
  const QuantizedWeight s4 = quantize(f32.view(), *parse_quant_scheme("s4:group=32"));
  PackedWeight packed(f32.view());
  PackedWeight small(s8);
  const PackedWeight untouched(f32.view());
  const auto start = std::string("packed weight: repack() takes a weight of the same kind, ");
  const auto refusal = [](PackedWeight& weight, const auto& other) {
    return sentence_of([&] { weight.repack(other); });
  };
  EXPECT_EQ(refusal(packed, make_weight(71, 90, one).view()),
            start + "f32 n=70 k=90, but the new one is f32 n=71 k=90");
  EXPECT_EQ(refusal(packed, make_weight(70, 91, one).view()),
            start + "f32 n=70 k=90, but the new one is f32 n=70 k=91");
  EXPECT_EQ(refusal(packed, make_weight(70, 90, one, {.dtype = Dtype::bf16}).view()),
            start + "f32 n=70 k=90, but the new one is bf16 n=70 k=90");
  EXPECT_EQ(refusal(packed, s8), start + "f32 n=70 k=90, but the new one is s8:channel n=70 k=90");
  EXPECT_EQ(refusal(small, f32.view()),
            start + "s8:channel n=70 k=90, but the new one is f32 n=70 k=90");
  EXPECT_EQ(refusal(small, s4),
            start + "s8:channel n=70 k=90, but the new one is s4:group=32 n=70 k=90");
  expect_same(packed, untouched);
  const PackedWeight taken = std::move(packed);
  EXPECT_EQ(refusal(packed, f32.view()),  // NOLINT(*-use-after-move): that is refused
            "packed weight: repack() of one that has been moved to another");
}

}  // namespace
}  // namespace plait
