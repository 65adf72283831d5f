// Random input, equal in every run: accepted input must give correct results, other input must be
// refused with a sentence, and the sanitizers must find nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plait/error.h"
#include "plait/quantized.h"
#include "quant/chance.h"
#include "quant/format.h"
#include "quant/scheme.h"
#include "quant/weights.h"

namespace plait {
namespace {

TEST(FuzzScheme, AcceptsOnlyWhatNameWrites) {
  Chance chance(1);
  const std::vector<std::string> words = {
      "s8", "s4", ":", "tensor", "channel", "group=", "64", "0", "1", "offsets", "-", "9999999999"};
  int accepted = 0;
  for (int round = 0; round < rounds(200000); ++round) {
    std::string text;
    for (std::int64_t i = chance.below(8); i >= 0; --i) text += chance.of(words);
    if (chance.one_in(2)) text = name(chance.of(all_schemes(1 + chance.below(300))));
    for (std::int64_t i = chance.below(3); i > 0; --i) mutate(text, chance);
    const auto scheme = parse_quant_scheme(text);
    if (!scheme) continue;
    ++accepted;
    ASSERT_NO_THROW(quant::check_scheme(*scheme, "test")) << text;
    ASSERT_EQ(parse_quant_scheme(name(*scheme)), scheme) << text;
    if (name(*scheme) == text) continue;
    // The only freedom is to leave out ":channel".
    ASSERT_EQ(scheme->per, QuantPer::channel) << text;
    std::string full = text;
    ASSERT_EQ(full.insert(2, ":channel"), name(*scheme)) << text;
  }
  EXPECT_GT(accepted, rounds(1000));
}

// A view of `bytes`, usually of the required size, sometimes of another size, or one that can't be
// read at all. The bytes that it claims to have exist.
class Views {
 public:
  Views(Chance& chance, std::vector<std::vector<std::byte>>& memory)
      : chance_(chance), memory_(memory) {}

  ConstTensorView make(Dtype dtype, std::int64_t rows, std::int64_t cols) {
    if (chance_.one_in(12)) dtype = static_cast<Dtype>(chance_.below(5));
    if (chance_.one_in(12)) rows = std::max<std::int64_t>(rows + chance_.below(3) - 1, 0);
    if (chance_.one_in(12)) cols = std::max<std::int64_t>(cols + chance_.below(3) - 1, 0);
    const std::int64_t stride = cols + chance_.below(4);
    const auto elements =
        static_cast<std::size_t>(std::max<std::int64_t>((rows - 1) * stride + cols, 0));
    auto& bytes = memory_.emplace_back(elements * (dtype > Dtype::s8 ? 1 : size_of(dtype)));
    for (std::byte& byte : bytes) byte = std::byte(chance_.below(256));
    // bf16 values of moderate size for every dtype, so that scales are mostly finite.
    for (std::size_t i = 1; i < bytes.size() && size_of(dtype) > 1; i += 2)
      bytes[i] &= std::byte{0x3f};
    ConstTensorView view = {
        .data = bytes.data(), .dtype = dtype, .rows = rows, .cols = cols, .row_stride = stride};
    spoil(view);
    return view;
  }

 private:
  void spoil(ConstTensorView& view) {
    if (chance_.one_in(30)) view.data = nullptr;
    if (chance_.one_in(30)) view.row_stride = view.cols - 1 - chance_.below(9);
    if (chance_.one_in(30)) view.rows = -1 - chance_.below(5);
    if (chance_.one_in(30)) view.device = Device::cuda(0);
    // With one row, it might be correct.
    const bool refused = view.rows > 1;
    if (refused && chance_.one_in(30)) view.cols = std::int64_t{1} << (40 + chance_.below(23));
  }

  Chance& chance_;
  std::vector<std::vector<std::byte>>& memory_;
};

void expect_consistent(const QuantizedWeight& weight) {
  const int lowest = quant::format_of(weight.scheme().bits).lowest;
  const int highest = quant::format_of(weight.scheme().bits).highest;
  for (std::int64_t j = 0; j < weight.n(); ++j) {
    for (std::int64_t i = 0; i < weight.k(); ++i) {
      ASSERT_TRUE(weight.value(j, i) >= lowest && weight.value(j, i) <= highest);
      ASSERT_TRUE(weight.offset(j, i) >= lowest && weight.offset(j, i) <= highest);
      ASSERT_TRUE(std::isfinite(weight.scale(j, i)));
    }
  }
  const OwnedWeight out = empty_weight(weight.n(), weight.k(), {.layout = WeightLayout::in_out});
  weight.dequantize(out.out, WeightLayout::in_out);
  if (weight.n() == 0) return;
  const auto again =
      QuantizedWeight::from_parts(weight.scheme(), weight.n(), weight.k(), parts_of(weight));
  ASSERT_TRUE(same_weight(again, weight));
}

TEST(FuzzFromParts, RefusesOrIsRight) {
  Chance chance(2);
  int accepted = 0;
  for (int round = 0; round < rounds(6000); ++round) {
    const QuantScheme scheme = chance.of(all_schemes(1 + chance.below(40)));
    const std::int64_t n = chance.one_in(10) ? chance.below(2) : chance.below(40);
    const std::int64_t k = chance.one_in(10) ? 250 + chance.below(20) : chance.below(30);
    const auto layout = static_cast<WeightLayout>(chance.one_in(40) ? 2 : chance.below(2));
    const bool out_in = layout == WeightLayout::out_in;
    const std::int64_t cols = out_in ? k : n;
    std::vector<std::vector<std::byte>> memory;
    Views views(chance, memory);
    const std::int64_t scale_rows = quant::group_count(scheme, k);
    const std::int64_t scale_cols = scheme.per == QuantPer::tensor ? 1 : n;
    QuantizedParts parts = {
        .values =
            views.make(Dtype::s8, out_in ? n : k, quant::format_of(scheme.bits).row_bytes(cols)),
        .layout = layout,
        .scales = views.make(static_cast<Dtype>(chance.below(3)), scale_rows, scale_cols)};
    if (scheme.offsets != chance.one_in(20)) {
      parts.offsets = views.make(Dtype::s8, scale_rows, scale_cols);
      if (scheme.bits < 8 && !chance.one_in(10)) {
        const int highest = quant::format_of(scheme.bits).highest;
        for (std::byte& byte : memory.back()) byte &= static_cast<std::byte>(highest);
      }
    }
    try {
      const QuantizedWeight weight = QuantizedWeight::from_parts(scheme, n, k, parts);
      ++accepted;
      ASSERT_NO_FATAL_FAILURE(expect_consistent(weight)) << name(scheme) << ' ' << n << ' ' << k;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid_argument) << error.what();
      ASSERT_EQ(std::string_view(error.what()).find("quantized weight: "), 0U) << error.what();
    }
  }
  EXPECT_GT(accepted, rounds(1000));
}

TEST(FuzzQuantize, RefusesOrIsRight) {
  Chance chance(3);
  int accepted = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    const QuantScheme scheme = chance.of(all_schemes(1 + chance.below(40)));
    std::vector<std::vector<std::byte>> memory;
    Views views(chance, memory);
    const auto dtype = static_cast<Dtype>(chance.below(3));
    const WeightView weight = {.view = views.make(dtype, chance.below(40), chance.below(40)),
                               .layout = static_cast<WeightLayout>(chance.below(2))};
    try {
      const QuantizedWeight made = quantize(weight, scheme);
      ++accepted;
      ASSERT_NO_FATAL_FAILURE(expect_consistent(made)) << name(scheme);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid_argument) << error.what();
      ASSERT_EQ(std::string_view(error.what()).find("quantize: "), 0U) << error.what();
    }
  }
  EXPECT_GT(accepted, rounds(1000));
}

}  // namespace
}  // namespace plait
