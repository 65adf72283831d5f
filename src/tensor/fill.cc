#include "tensor/fill.h"

#include <vector>

#include "tensor/validate.h"

namespace plait::tensor {
namespace {

// The finaliser of SplitMix64: every input bit flips about half of the output bits.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

void fill_random(const TensorView& view, std::uint64_t seed, Origin origin) {
  validate_on_cpu(view, "fill_random: the view");
  if (view.bytes() == 0) return;
  // 24 random bits are exact in f32, and cover [-1, 1). For s8, 8 of them cover [-128, 127].
  const bool whole = view.dtype == Dtype::s8;
  const float step = whole ? 1.0F : 0x1p-23F;
  const float low = whole ? -128.0F : -1.0F;
  const int shift = whole ? 56 : 40;
  std::vector<float> values(static_cast<std::size_t>(view.cols));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    const auto of_row = mixed(mixed(seed) + static_cast<std::uint64_t>(origin.row + row));
    auto col = static_cast<std::uint64_t>(origin.col);
    for (float& value : values) {
      value = low + step * static_cast<float>(mixed(of_row + col++) >> shift);
    }
    convert(values.data(), Dtype::f32, view.row(row), view.dtype, values.size());
  }
}

}  // namespace plait::tensor
