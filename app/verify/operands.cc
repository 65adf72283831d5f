#include "verify/operands.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/round_up.h"
#include "ops/shapes.h"
#include "tensor/copy_rows.h"

namespace plait::verify {
namespace {

constexpr std::int64_t kAround = 2;  // rows before and after
constexpr int kPoison = 0xA5;

constexpr std::uint64_t kSeedOfOtherX = 0;

// A factor for all numbers of a row. f16 has no numbers as small as f32's.
float random_scale(Random& random, Dtype dtype) {
  if (dtype == Dtype::f16) return random.of<float>({1, 1, 0x1p-12F, 0x1p-20F, 0x1p9F});
  return random.of<float>({1, 1, 0x1p-20F, 0x1p-100F, 0x1p-130F, 0x1p9F});
}

// Infinities, and NaNs with two payloads, which stay quiet and different in every dtype.
float random_special(Random& random) {
  return std::bit_cast<float>(
      random.of<std::uint32_t>({0x7f800000U, 0xff800000U, 0x7fc20000U, 0xffe40000U}));
}

constexpr std::int64_t kNumbersPerZero = 16;
constexpr std::int64_t kNumbersPerSpecial = 600;

}  // namespace

void fill(const TensorView& view, Numbers numbers, std::uint64_t seed, tensor::Origin origin) {
  tensor::fill_random(view, seed, origin);
  if (numbers == Numbers::usual || view.bytes() == 0) return;
  std::vector<float> values(static_cast<std::size_t>(view.cols));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    Random random(seed, static_cast<std::uint64_t>(origin.row + row));
    const float scale = random_scale(random, view.dtype);
    convert(view.row(row), view.dtype, values.data(), Dtype::f32, values.size());
    for (float& value : values) {
      value *= random.one_in(kNumbersPerZero) ? 0 : scale;
      if (numbers == Numbers::broken && random.one_in(kNumbersPerSpecial))
        value = random_special(random);
    }
    convert(values.data(), Dtype::f32, view.row(row), view.dtype, values.size());
  }
}

Guarded::Guarded(Dtype dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap)
    : whole_rows_(rows + 2 * kAround),
      whole_cols_(cols + gap),
      memory_(Buffer::for_tensor(dtype, whole_rows_, whole_cols_)) {
  view_ = memory_.view(dtype, whole_rows_, whole_cols_)
              .row_range(kAround, kAround + rows)
              .column_range(0, cols);
  poison();
}

void Guarded::poison() {
  if (memory_.bytes() > 0) std::memset(memory_.data(), kPoison, memory_.bytes());
}

bool Guarded::is_intact() const {
  const auto is_poison = [](const std::byte* from, const std::byte* to) {
    for (; from != to; ++from) {
      if (*from != std::byte{kPoison}) return false;
    }
    return true;
  };
  const TensorView whole = memory_.view(view_.dtype, whole_rows_, whole_cols_);
  for (std::int64_t row = 0; row < whole_rows_; ++row) {
    const auto* begin = static_cast<const std::byte*>(whole.row(row));
    const bool inside = row >= kAround && row < kAround + view_.rows;
    if (!is_poison(begin + (inside ? view_.row_bytes() : 0), begin + whole.row_bytes()))
      return false;
  }
  return true;
}

double element(const ConstTensorView& view, std::int64_t row, std::int64_t col) {
  const auto read = [&](auto value) {
    std::memcpy(&value, static_cast<const std::byte*>(view.row(row)) + col * sizeof(value),
                sizeof(value));
    return static_cast<double>(static_cast<float>(value));
  };
  switch (view.dtype) {
    case Dtype::f32:
      return read(0.0F);
    case Dtype::bf16:
      return read(Bf16());
    case Dtype::f16:
      return read(F16());
    case Dtype::s8:
      break;
  }
  return read(std::int8_t{0});
}

double element(const WeightView& weight, std::int64_t k, std::int64_t column) {
  return weight.layout == WeightLayout::out_in ? element(weight.view, column, k)
                                               : element(weight.view, k, column);
}

double element(const QuantizedWeight& weight, std::int64_t k, std::int64_t column) {
  return (weight.value(column, k) + weight.offset(column, k)) * double{weight.scale(column, k)};
}

QuantizedWeight part_of(const QuantizedWeight& whole, Range columns, Range k) {
  const QuantScheme& scheme = whole.scheme();
  const auto bytes = [&](std::int64_t values) { return (values * scheme.bits + 7) / 8; };
  const auto part_of_scales = [&](const ConstTensorView& all) {
    if (all.data == nullptr) {
      ConstTensorView none = all;  // no offsets, or scales of no groups
      none.cols = std::min(all.cols, columns.end - columns.begin);
      return none;
    }
    if (scheme.per == QuantPer::tensor) return all.column_range(0, 1);
    const ConstTensorView some = all.column_range(columns.begin, columns.end);
    if (scheme.per == QuantPer::channel) return some;
    return some.row_range(k.begin / scheme.group, base::ceil_div(k.end, scheme.group));
  };
  const QuantizedParts parts = {.values = whole.values()
                                              .row_range(columns.begin, columns.end)
                                              .column_range(bytes(k.begin), bytes(k.end)),
                                .layout = WeightLayout::out_in,
                                .scales = part_of_scales(whole.scales()),
                                .offsets = part_of_scales(whole.offsets())};
  return QuantizedWeight::from_parts(scheme, columns.end - columns.begin, k.end - k.begin, parts,
                                     /*threads=*/1);
}

namespace {

Guarded plain_weight(const VerifyCase& one, std::size_t rank) {
  const Dtype dtype = one.scheme ? Dtype::f32 : one.weight;
  const bool out_in = one.layout == WeightLayout::out_in;
  Guarded weight(dtype, out_in ? one.n[rank] : one.k[rank], out_in ? one.k[rank] : one.n[rank]);
  // A weight to be quantised must be finite, and a few far larger values would leave little of the
  // others.
  fill(weight.view(), one.scheme ? Numbers::usual : one.numbers,
       one.seed * 16 + rank * 4 + kSeedOfWeight);
  return weight;
}

}  // namespace

Guarded joined_weight(const VerifyCase& one) {
  const std::int64_t share = one.k[0];
  const std::int64_t k = share * static_cast<std::int64_t>(one.k.size());
  const bool out_in = one.layout == WeightLayout::out_in;
  Guarded whole(one.scheme ? Dtype::f32 : one.weight, out_in ? one.n[0] : k, out_in ? k : one.n[0]);
  for (std::size_t rank = 0; rank < one.k.size(); ++rank) {
    const std::int64_t first = static_cast<std::int64_t>(rank) * share;
    tensor::copy_rows(plain_weight(one, rank).view(),
                      out_in ? whole.view().column_range(first, first + share)
                             : whole.view().row_range(first, first + share));
  }
  return whole;
}

VerifyOperands::VerifyOperands(const VerifyCase& one, int rank, int world) : case_(one) {
  const auto index = static_cast<std::size_t>(rank);
  const std::int64_t n = one.n[index];
  const std::int64_t k = one.k[index];
  const ops::Rows rows = ops::shapes_of(one.op).x;
  const std::int64_t first = ops::range_of(rows, one.m, rank, world).begin;
  // Shards of one matrix, or one matrix per rank.
  const std::uint64_t seed = one.seed * 16 + (rows == ops::Rows::all ? index * 4 : 0);
  const auto random_x = [&](std::uint64_t which) {
    Guarded x(one.x, ops::count(rows, one.m, rank, world), k);
    fill(x.view(), one.numbers, seed + which, {.row = first});
    return x;
  };
  x_ = random_x(kSeedOfX);
  other_x_ = random_x(kSeedOfOtherX);
  weight_ = plain_weight(one, index);
  const WeightView view = {.view = weight_.view(), .layout = one.layout};
  if (one.scheme) {
    if (one.scheme->per != QuantPer::group && is_as_on_one_rank(one)) {
      // It is quantised as a whole, so that a column has one scale.
      const Guarded whole = joined_weight(one);
      quantized_ = part_of(quantize({.view = whole.view(), .layout = one.layout}, *one.scheme,
                                    /*threads=*/1),
                           {0, n}, {rank * k, (rank + 1) * k});
    } else {
      quantized_ = quantize(view, *one.scheme);
    }
    packed_.emplace(*quantized_);
  } else if (one.packed) {
    packed_.emplace(view);
  }
  if (!one.bias) return;
  bias_ = Guarded(one.bias_dtype, 1, n);
  fill(bias_.view(), one.numbers, one.seed * 16 + kSeedOfBias);
}

ConstTensorView VerifyOperands::bias() const {
  return case_.bias ? ConstTensorView(bias_.view()) : ConstTensorView{};
}

Weight VerifyOperands::weight() const {
  if (packed_) return *packed_;
  return WeightView{.view = weight_.view(), .layout = case_.layout};
}

double VerifyOperands::x_at(std::int64_t row, std::int64_t k) const {
  return element(x_.view(), row, k);
}

double VerifyOperands::weight_at(std::int64_t k, std::int64_t column) const {
  if (quantized_) return element(*quantized_, k, column);
  return element(WeightView{.view = weight_.view(), .layout = case_.layout}, k, column);
}

double VerifyOperands::bias_at(std::int64_t column) const {
  return case_.bias ? element(bias_.view(), 0, column) : 0.0;
}

}  // namespace plait::verify
