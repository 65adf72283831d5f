// Rows of f32 as numbers of 8 bits with scales: partial sums on an s8 wire.
//
//   std::vector<std::byte> block(coded_bytes(rows, columns));
//   encode_rows(sums, block.data());
//   decode(block.data(), {.rows = rows, .columns = columns},
//          {.row = 3, .column = 64, .n = 100}, to);
//
// In every row, columns 0 to 63, 64 to 127 and so on are a group with a scale of its own:
//
//   scale = bf16(max |x| / 127), but at least 2^-126     code = round(x / scale), -127 to 127
//
// Both are rounded to nearest, ties to even, and x / scale is x times the rounded 1 / scale. An
// element is received as code·scale, which f32 holds exactly. It differs from x by at most
// (1/2 + 2^-16)·scale, hence by max |x| / 252 or 2^-126, whichever is larger. A group of zeros is
// received as zeros. Finite numbers stay finite. If one element of a group is an infinity or a NaN,
// the whole group is received as NaNs.
//
// A row's codes depend on its values only, not on the processor. They obey the thread's rounding
// mode and denormal flags, which the caller sets: see base::DefaultFloats.
//
// A block has the scales of all its rows first, and then all codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plait/tensor_view.h"

namespace plait::tensor {

// The columns that share a scale. A block must begin at a multiple of it.
inline constexpr std::int64_t kScaleGroup = 64;

constexpr std::int64_t scales_of(std::int64_t columns) {
  return (columns + kScaleGroup - 1) / kScaleGroup;
}

constexpr std::int64_t coded_bytes(std::int64_t rows, std::int64_t columns) {
  return rows * (columns + 2 * scales_of(columns));
}

struct CodedShape {
  std::int64_t rows;
  std::int64_t columns;
};

// Elements of a row, from a multiple of kScaleGroup on.
struct CodedPiece {
  std::int64_t row;
  std::int64_t column;
  std::int64_t n;
};

// Writes these rows, of f32, of a block of that shape: the first one is row `first`.
void encode_rows(const ConstTensorView& from, CodedShape shape, std::int64_t first, std::byte* to);

// A whole block.
inline void encode_rows(const ConstTensorView& from, std::byte* to) {
  encode_rows(from, {.rows = from.rows, .columns = from.cols}, 0, to);
}

void decode(const std::byte* block, CodedShape shape, const CodedPiece& piece, float* to);

// Rounds `n` elements of a row as a receiver gets them, from a multiple of kScaleGroup on. `to` may
// be `from`.
void round_as_coded(const float* from, float* to, std::int64_t n);

}  // namespace plait::tensor
