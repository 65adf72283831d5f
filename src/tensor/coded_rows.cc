#include "tensor/coded_rows.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tensor/kernels.h"

namespace plait::tensor {
namespace {

constexpr std::int64_t kScaleBytes = 2;

// The offsets of a piece's scales and codes in a block.
struct Offsets {
  std::int64_t scales;
  std::int64_t codes;
};

Offsets offsets_of(CodedShape shape, std::int64_t row, std::int64_t column) {
  const std::int64_t per_row = scales_of(shape.columns);
  return {.scales = (row * per_row + column / kScaleGroup) * kScaleBytes,
          .codes = shape.rows * per_row * kScaleBytes + row * shape.columns + column};
}

}  // namespace

void encode_rows(const ConstTensorView& from, CodedShape shape, std::int64_t first, std::byte* to) {
  PLAIT_CHECK(from.dtype == Dtype::f32, "encode_rows: rows are ", name(from.dtype), ", not f32");
  if (from.cols == 0) return;
  const Encode encode = kernels().encode;
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const Offsets at = offsets_of(shape, first + row, 0);
    encode({.codes = to + at.codes, .scales = to + at.scales},
           static_cast<const float*>(from.row(row)), static_cast<std::size_t>(from.cols));
  }
}

void decode(const std::byte* block, CodedShape shape, const CodedPiece& piece, float* to) {
  const Offsets at = offsets_of(shape, piece.row, piece.column);
  kernels().decode(to, block + at.codes, block + at.scales, static_cast<std::size_t>(piece.n));
}

void round_as_coded(const float* from, float* to, std::int64_t n) {
  constexpr std::int64_t kAtOnce = 4 * kScaleGroup;
  std::array<std::byte, coded_bytes(1, kAtOnce)> block;  // NOLINT(*-member-init): written first
  const Kernels& set = kernels();
  for (std::int64_t i = 0; i < n; i += kAtOnce) {
    const auto count = static_cast<std::size_t>(std::min(kAtOnce, n - i));
    std::byte* const scales = block.data() + kAtOnce;
    set.encode({.codes = block.data(), .scales = scales}, from + i, count);
    set.decode(to + i, block.data(), scales, count);
  }
}

}  // namespace plait::tensor
