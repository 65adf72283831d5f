#include "gemm/rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.h"
#include "gemm/loops.h"
#include "tensor/stride.h"

namespace plait::gemm {
namespace {

// Rows of a power of two bytes would all fall into the same few sets of the cache.
constexpr std::int64_t kRowGap = 64;

const std::byte* element(const ConstTensorView& view, std::int64_t i, std::int64_t j) {
  return static_cast<const std::byte*>(view.row(i)) +
         j * static_cast<std::int64_t>(size_of(view.dtype));
}

// A block of X to copy: `rows` rows from `begin` on, `length` k from `k` on.
struct RowBlock {
  std::int64_t begin;
  std::int64_t rows;
  std::int64_t k;
  std::int64_t length;  // at most kKStep where the source is transposed
};

// to[i] = the block's row i in `operand`, `to_stride` bytes apart.
void copy_rows(const GemmInput& x, const RowBlock& block, Dtype operand, std::byte* to,
               std::int64_t to_stride) {
  for (std::int64_t i = 0; i < block.rows; ++i) {
    const std::byte* from = element(x.view, block.begin + i, block.k);
    const auto n = static_cast<std::size_t>(block.length);
    if (x.view.dtype == operand) {
      std::memcpy(to + i * to_stride, from, n * size_of(operand));
    } else {
      convert(from, x.view.dtype, to + i * to_stride, operand, n);
    }
  }
}

// Copies rows into tiles, for any length: a row's steps of k lie a tile apart. Rows are read one
// after another, which is the fastest way through memory.
void copy_rows_to_tiles(const GemmInput& x, const RowBlock& block, Dtype operand, std::byte* to) {
  const std::size_t bytes = size_of(operand);
  const std::size_t row_bytes = kKStep * bytes;
  const bool as_is = x.view.dtype == operand;
  for (std::int64_t i = 0; i < block.rows; ++i) {
    std::byte* row = to + static_cast<std::size_t>(i) * row_bytes;
    for (std::int64_t k = 0; k < block.length; k += kKStep, row += kRowGroup * row_bytes) {
      const std::byte* from = element(x.view, block.begin + i, block.k + k);
      const auto n = static_cast<std::size_t>(std::min<std::int64_t>(kKStep, block.length - k));
      if (as_is && row_bytes == 64 && n == kKStep) {
        std::memcpy(row, from, 64);  // a length that the compiler knows
      } else {
        convert(from, x.view.dtype, row, operand, n);
        std::memset(row + n * bytes, 0, row_bytes - n * bytes);
      }
    }
  }
}

// Copies rows from [k, m]: turned over in words, which are pairs of k for bf16.
void turn_rows(const GemmInput& x, const RowBlock& block, Dtype operand, std::byte* to,
               std::int64_t to_stride) {
  alignas(64) std::array<std::uint32_t, kKStep * kRowGroup> words = {};
  const auto rows = static_cast<std::size_t>(block.rows);
  if (operand == Dtype::bf16) {
    static constexpr std::array<std::uint16_t, kRowGroup> kZeros = {};
    for (std::int64_t k = 0; k < block.length; k += 2) {
      const std::byte* odd = k + 1 < block.length
                                 ? element(x.view, block.k + k + 1, block.begin)
                                 : reinterpret_cast<const std::byte*>(kZeros.data());
      loops().interleave(
          reinterpret_cast<const std::uint16_t*>(element(x.view, block.k + k, block.begin)),
          reinterpret_cast<const std::uint16_t*>(odd), block.rows, &words[k / 2 * kRowGroup],
          Stores::cached);
    }
  } else {
    for (std::int64_t k = 0; k < block.length; ++k)
      convert(element(x.view, block.k + k, block.begin), x.view.dtype, &words[k * kRowGroup],
              Dtype::f32, rows);
  }
  const std::int64_t depth = operand == Dtype::bf16 ? (block.length + 1) / 2 : block.length;
  loops().transpose(
      {reinterpret_cast<const std::byte*>(words.data()), kRowGroup * 4, depth, block.rows},
      reinterpret_cast<std::uint32_t*>(to), to_stride / 4, Stores::cached);
}

}  // namespace

const std::byte* Rows::at(const TileKernel& kernel, std::int64_t row, std::int64_t k) const {
  const auto bytes = static_cast<std::int64_t>(size_of(kernel.operand()));
  if (kernel.row_form() == RowForm::plain) return data + row * row_stride + k * bytes;
  return data + row / kRowGroup * row_stride + k * bytes * kRowGroup;
}

bool can_read_in_place(const GemmInput& x, const Depth& depth, const TileKernel& kernel) {
  return kernel.row_form() == RowForm::plain && !x.transposed && x.view.dtype == kernel.operand() &&
         depth.is_unpadded();
}

Rows in_place(const GemmInput& x) {
  return {.data = static_cast<const std::byte*>(x.view.data),
          .row_stride = tensor::stride_bytes(x.view)};
}

std::int64_t packed_row_stride(const Depth& depth, const TileKernel& kernel) {
  const std::int64_t row = depth.padded() * static_cast<std::int64_t>(size_of(kernel.operand()));
  return kernel.row_form() == RowForm::plain ? row + kRowGap : row * kRowGroup;
}

std::size_t packed_rows_bytes(std::int64_t rows, const Depth& depth, const TileKernel& kernel) {
  const std::int64_t strides =
      kernel.row_form() == RowForm::plain ? rows : ceil_div(rows, kRowGroup);
  return static_cast<std::size_t>(strides * packed_row_stride(depth, kernel));
}

namespace {

// Rows [begin, end) of X, at most a group, into `to`, which is where that group belongs.
void pack_group(const GemmInput& x, Range group, const Depth& depth, const TileKernel& kernel,
                std::byte* to) {
  const Dtype operand = kernel.operand();
  const auto bytes = static_cast<std::int64_t>(size_of(operand));
  const bool tiles = kernel.row_form() == RowForm::tiles;
  const std::int64_t rows = group.end - group.begin;
  const std::int64_t to_stride = tiles ? kKStep * bytes : packed_row_stride(depth, kernel);
  for (std::int64_t g = 0; g < depth.groups(); ++g) {
    const std::int64_t length = depth.length(g);
    // Turned rows are built step by step.
    for (std::int64_t k = 0; k < length; k += x.transposed ? kKStep : length) {
      const RowBlock block = {
          .begin = group.begin,
          .rows = rows,
          .k = depth.begin(g) + k,
          .length = x.transposed ? std::min<std::int64_t>(kKStep, length - k) : length};
      std::byte* at = to + (depth.padded_begin(g) + k) * bytes * (tiles ? kRowGroup : 1);
      if (tiles && !x.transposed) {
        copy_rows_to_tiles(x, block, operand, at);
        continue;
      }
      const std::int64_t padded = round_up(block.length, kKStep);
      for (std::int64_t i = 0; padded != block.length && i < rows; ++i)
        std::memset(at + i * to_stride, 0, static_cast<std::size_t>(padded * bytes));
      (x.transposed ? turn_rows : copy_rows)(x, block, operand, at, to_stride);
    }
  }
}

}  // namespace

Rows pack_rows(const GemmInput& x, Range rows, const Depth& depth, const TileKernel& kernel,
               const Packing& packing) {
  const std::int64_t stride = packed_row_stride(depth, kernel);
  const std::int64_t group_stride =
      kernel.row_form() == RowForm::plain ? stride * kRowGroup : stride;
  const std::int64_t groups = ceil_div(rows.end - rows.begin, kRowGroup);
  base::parallel_for(groups, packing.threads, [&](std::int64_t group) {
    const std::int64_t begin = rows.begin + group * kRowGroup;
    pack_group(x, {begin, std::min(begin + kRowGroup, rows.end)}, depth, kernel,
               packing.to + group * group_stride);
  });
  return {.data = packing.to, .row_stride = stride};
}

RowsForm form_of(const TileKernel* kernel) {
  if (kernel == nullptr) return {};
  return {.is_packed = true, .operand = kernel->operand(), .form = kernel->row_form()};
}

}  // namespace plait::gemm
