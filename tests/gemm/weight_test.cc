#include "plait/weight.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "gemm/matrix.h"
#include "plait/packed_weight.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

static_assert(std::is_trivially_copyable_v<Weight> && sizeof(Weight) <= 80);
static_assert(std::is_convertible_v<WeightView, Weight>);
static_assert(std::is_convertible_v<PackedWeight&, Weight>);
static_assert(std::is_convertible_v<const PackedWeight&, Weight>);
static_assert(!std::is_constructible_v<Weight, PackedWeight>);  // it would lead to nothing
static_assert(!std::is_constructible_v<Weight, const PackedWeight>);

TEST(Weight, AnswersForAView) {
  const Matrix w(Dtype::f16, 5, 7);
  const Weight weight = WeightView{.view = w.view, .layout = WeightLayout::in_out};
  EXPECT_EQ(weight.n(), 7);
  EXPECT_EQ(weight.k(), 5);
  EXPECT_EQ(weight.dtype(), Dtype::f16);
  EXPECT_EQ(weight.scheme(), std::nullopt);
  EXPECT_FALSE(weight.is_packed());
  EXPECT_EQ(weight.layout(), WeightLayout::in_out);
  EXPECT_EQ(weight.view().view.data, w.view.data);
  EXPECT_EQ(name(weight.kind()), "f16:plain");
  EXPECT_EQ(sentence_of([&] { static_cast<void>(weight.packed()); }),
            "weight: a plain one of n=7 k=5 is not packed");
}

TEST(Weight, AnswersForAPackedOne) {
  const Matrix w(Dtype::bf16, 5, 7);
  const WeightView view = {.view = w.view, .layout = WeightLayout::out_in};
  const PackedWeight packed(view);
  const Weight weight = packed;
  EXPECT_EQ(weight.n(), 5);
  EXPECT_EQ(weight.k(), 7);
  EXPECT_EQ(weight.dtype(), Dtype::bf16);
  EXPECT_TRUE(weight.is_packed());
  EXPECT_EQ(&weight.packed(), &packed);
  EXPECT_EQ(name(weight.kind()), "bf16");
  EXPECT_EQ(sentence_of([&] { static_cast<void>(weight.view()); }),
            "weight: a packed one of n=5 k=7 has no view: its elements lie in panels");
  const PackedWeight small(quantize(view, *parse_quant_scheme("s4:group=4")));
  EXPECT_EQ(Weight(small).dtype(), Dtype::s8);
  EXPECT_EQ(Weight(small).scheme(), small.scheme());
  EXPECT_EQ(name(Weight(small).kind()), "s4:group=4");
}

TEST(WeightKind, IsToldByItsSchemeOrElseItsDtype) {
  const QuantScheme scheme = {.bits = 8};
  const WeightKind quantised = {.scheme = scheme};
  EXPECT_TRUE(quantised.is_packed);
  EXPECT_EQ(quantised, (WeightKind{.dtype = Dtype::s8, .scheme = scheme}));
  EXPECT_NE(quantised, (WeightKind{.dtype = Dtype::s8, .scheme = QuantScheme{.bits = 4}}));
  EXPECT_NE(WeightKind{}, (WeightKind{.dtype = Dtype::f32}));
  EXPECT_NE(WeightKind{}, (WeightKind{.is_packed = true}));
}

}  // namespace
}  // namespace plait
