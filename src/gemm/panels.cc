#include "gemm/panels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/copy.h"
#include "tensor/stride.h"

namespace plait::gemm {
namespace {

const std::byte* element(const ConstTensorView& view, std::int64_t i, std::int64_t j) {
  return static_cast<const std::byte*>(view.row(i)) +
         j * static_cast<std::int64_t>(size_of(view.dtype));
}

template <class Word>
const Word* words(const std::byte* at) {
  return reinterpret_cast<const Word*>(at);
}

std::uint16_t half_word(const std::byte* at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Which loops pack a weight, and how they write.
struct PackMethod {
  const Loops& loops;
  Stores stores;
};

// A row per output: the panel holds the words of its rows, transposed.
void pack_out_in(const WeightView& weight, const PanelPart& part, std::int64_t columns,
                 PackMethod method, std::uint32_t* to) {
  const ConstTensorView& view = weight.view;
  const std::int64_t first = part.panel * kPanelColumns;
  const auto element_bytes = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t words_of_row = part.length * element_bytes / 4;
  method.loops.transpose(
      {element(view, first, part.begin), tensor::stride_bytes(view), columns, words_of_row}, to,
      kPanelColumns, method.stores);
  if (words_of_row * 4 == part.length * element_bytes) return;
  for (std::int64_t j = 0; j < columns; ++j)  // the last of an odd number of halves
    to[words_of_row * kPanelColumns + j] =
        half_word(element(view, first + j, part.begin + part.length - 1));
}

// Prefetches a row: rows lie so far apart that the processor's own prefetching doesn't find them.
// It goes to the second-level cache, because rows that are a power of two of bytes apart displace
// one another from the first. Addresses behind the last row are harmless.
void ask_for(const std::byte* row, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < bytes; at += kLine)
    __builtin_prefetch(row + at, /*rw=*/0, /*locality=*/2);
}

void copy_row(const std::byte* from, std::int64_t bytes, Stores stores, std::uint32_t* to) {
  const auto n = static_cast<std::size_t>(bytes);
  if (stores == Stores::streamed) {
    tensor::stream_copy(to, from, n);
  } else {
    std::memcpy(to, from, n);
  }
}

// A row per input: f32 rows are copied, 16-bit rows go together in pairs.
void pack_in_out(const WeightView& weight, const PanelPart& part, std::int64_t columns,
                 PackMethod method, std::uint32_t* to) {
  constexpr std::int64_t kRowsAhead = 32;
  const ConstTensorView& view = weight.view;
  const std::int64_t first = part.panel * kPanelColumns;
  static constexpr std::array<std::uint16_t, kPanelColumns> kZeros = {};
  const bool wide = view.dtype == Dtype::f32;
  const std::int64_t stride = tensor::stride_bytes(view);
  const std::int64_t bytes = columns * static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t k = 0; k < part.length; k += wide ? 1 : 2, to += kPanelColumns) {
    const std::byte* row = element(view, part.begin + k, first);
    ask_for(row + kRowsAhead * stride, bytes);
    if (wide) {
      copy_row(row, bytes, method.stores, to);
      continue;
    }
    ask_for(row + (kRowsAhead + 1) * stride, bytes);
    const std::byte* next =
        k + 1 < part.length ? row + stride : reinterpret_cast<const std::byte*>(kZeros.data());
    method.loops.interleave(words<std::uint16_t>(row), words<std::uint16_t>(next), columns, to,
                            method.stores);
  }
}

}  // namespace

Storage storage_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return Storage::bf16;
  return dtype == Dtype::f16 ? Storage::f16 : Storage::f32;
}

void pack_panel(const WeightView& weight, const PanelPart& part, std::byte* to, Stores stores,
                const Loops& with) {
  const Storage storage = storage_of(weight.view.dtype);
  const std::int64_t columns =
      std::min<std::int64_t>(kPanelColumns, weight.n() - part.panel * kPanelColumns);
  const std::int64_t whole = columns < kPanelColumns ? 0 : part.length / 2 * 2;
  const std::size_t written = panel_bytes(storage, whole);
  const std::size_t padded = panel_bytes(storage, round_up(part.length, kKStep));
  if (written < padded) std::memset(to + written, 0, padded - written);
  auto* target = reinterpret_cast<std::uint32_t*>(to);
  const PackMethod method = {.loops = with, .stores = stores};
  (weight.layout == WeightLayout::out_in ? pack_out_in : pack_in_out)(weight, part, columns, method,
                                                                      target);
}

void expand(Storage storage, const std::byte* from, std::int64_t k, const std::int8_t* offsets,
            Dtype operand, std::byte* to) {
  const auto* pairs = words<std::uint32_t>(from);
  const auto* values = words<std::int8_t>(from);
  auto* floats = reinterpret_cast<float*>(to);
  auto* halves = reinterpret_cast<std::uint32_t*>(to);
  if (storage == Storage::bf16) return loops().widen_bf16(pairs, k, floats);
  if (storage == Storage::f16) return loops().widen_f16(pairs, k, floats);
  if (operand == Dtype::f32) {
    return (storage == Storage::s8 ? loops().s8_to_f32 : loops().s4_to_f32)(values, k, offsets,
                                                                            floats);
  }
  (storage == Storage::s8 ? loops().s8_to_bf16 : loops().s4_to_bf16)(values, k, offsets, halves);
}

bool is_operand(Storage storage, Dtype operand) {
  return (storage == Storage::f32 && operand == Dtype::f32) ||
         (storage == Storage::bf16 && operand == Dtype::bf16);
}

}  // namespace plait::gemm
