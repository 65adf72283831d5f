#include "gemm/loops.h"

#include <algorithm>
#include <cstring>

#include "tensor/kernels.h"

namespace plait::gemm {
namespace {

// Works in squares of 16 words, so that both sides stay in the cache.
void transpose(const Words& from, std::uint32_t* to, std::int64_t to_stride, Stores /*stores*/) {
  constexpr std::int64_t kSquare = 16;
  for (std::int64_t i0 = 0; i0 < from.rows; i0 += kSquare) {
    for (std::int64_t j0 = 0; j0 < from.cols; j0 += kSquare) {
      const std::int64_t i1 = std::min(i0 + kSquare, from.rows);
      const std::int64_t j1 = std::min(j0 + kSquare, from.cols);
      for (std::int64_t i = i0; i < i1; ++i) {
        for (std::int64_t j = j0; j < j1; ++j) {
          std::memcpy(to + j * to_stride + i, from.data + i * from.stride + j * 4, 4);
        }
      }
    }
  }
}

void interleave(const std::uint16_t* even, const std::uint16_t* odd, std::int64_t n,
                std::uint32_t* to, Stores /*stores*/) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t pair[2];  // NOLINT(*-avoid-c-arrays): a word's two halves
    std::memcpy(&pair[0], even + i, 2);
    std::memcpy(&pair[1], odd + i, 2);
    const std::uint32_t word = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
    std::memcpy(to + i, &word, sizeof(word));
  }
}

template <Element T>
float half_of(std::uint32_t pair, int which) {
  return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(pair >> (16 * which))));
}

template <Element T>
void widen(const std::uint32_t* from, std::int64_t k, float* to) {
  for (std::int64_t i = 0; i < k / 2; ++i) {
    for (int j = 0; j < kPanelColumns; ++j) {
      const std::uint32_t pair = from[i * kPanelColumns + j];
      to[2 * i * kPanelColumns + j] = half_of<T>(pair, 0);
      to[(2 * i + 1) * kPanelColumns + j] = half_of<T>(pair, 1);
    }
  }
}

// The value at k = 2i + which of column j of a block.
template <int Bits>
int value_at(const std::int8_t* from, std::int64_t i, int j, int which) {
  if constexpr (Bits == 8) {
    return from[(i * kPanelColumns + j) * 2 + which];
  } else {
    const auto both = static_cast<std::uint8_t>(from[i * kPanelColumns + j]);
    // Arithmetic shifts keep the sign of the half that is on top.
    return which == 0 ? static_cast<std::int8_t>(both << 4) >> 4
                      : static_cast<std::int8_t>(both) >> 4;
  }
}

template <int Bits>
void to_f32(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets, float* to) {
  for (std::int64_t i = 0; i < k; ++i) {
    for (int j = 0; j < kPanelColumns; ++j) {
      const int offset = offsets == nullptr ? 0 : offsets[j];
      to[i * kPanelColumns + j] =
          static_cast<float>(value_at<Bits>(from, i / 2, j, static_cast<int>(i % 2)) + offset);
    }
  }
}

template <int Bits>
void to_bf16(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets,
             std::uint32_t* to) {
  for (std::int64_t i = 0; i < k / 2; ++i) {
    for (int j = 0; j < kPanelColumns; ++j) {
      const int offset = offsets == nullptr ? 0 : offsets[j];
      const Bf16 even(static_cast<float>(value_at<Bits>(from, i, j, 0) + offset));
      const Bf16 odd(static_cast<float>(value_at<Bits>(from, i, j, 1) + offset));
      to[i * kPanelColumns + j] = even.bits | static_cast<std::uint32_t>(odd.bits) << 16;
    }
  }
}

void add_to_leaf(const PieceSums& from, int rows, const Slots& slots) {
  const Piece& last = from.pieces.back();
  const int slot = Leaves::slot_of(last.leaf);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const waiting = slots.sums + i * kPanelColumns;
    float* const leaf = waiting + slot * slots.stride;
    if (from.add_up && from.begins_leaf) std::fill_n(leaf, kPanelColumns, 0.0F);
    const float* sums = from.sums + i * kPanelColumns;
    const float* scales = from.scales;
    for (std::size_t piece = 0; piece < from.pieces.size(); ++piece) {
      for (int j = 0; j < kPanelColumns; ++j) {
        const float sum = scales == nullptr ? sums[j] : sums[j] * scales[j];
        leaf[j] = from.add_up ? leaf[j] + sum : sum;
      }
      sums += rows * std::int64_t{kPanelColumns};
      scales += from.scales_step;
    }
    for (int below = 0; last.ends_leaf && below < slot; ++below) {
      const float* node = waiting + below * slots.stride;
      for (int j = 0; j < kPanelColumns; ++j) leaf[j] = node[j] + leaf[j];
    }
  }
}

void add_to_leaves(const PieceSums& from, int rows, const Slots& slots) {
  for_each_leaf(from, rows, [&](const PieceSums& leaf) { add_to_leaf(leaf, rows, slots); });
}

template <Element T>
void finish_row(const Finish& how, const float* sums, std::int64_t n, void* out) {
  auto* to = static_cast<std::byte*>(out);
  for (std::int64_t j = 0; j < n; ++j, to += sizeof(T)) {
    float y = sums[j];
    if (how.scales != nullptr) y *= how.scales[j];
    if (how.bias != nullptr) y += how.bias[j];
    T result;
    if (how.accumulate) {
      std::memcpy(&result, to, sizeof(T));
      y += static_cast<float>(result);
    }
    result = T(tensor::with_one_nan(y));
    std::memcpy(to, &result, sizeof(T));
  }
}

template <Element T>
void finish_as(const Finish& how, const float* sums, const TensorView& out) {
  for (std::int64_t i = 0; i < out.rows; ++i)
    finish_row<T>(how, sums + i * kPanelColumns, out.cols, out.row(i));
}

void finish(const Finish& how, const float* sums, const TensorView& out) {
  switch (out.dtype) {
    case Dtype::f32:
      return finish_as<float>(how, sums, out);
    case Dtype::bf16:
      return finish_as<Bf16>(how, sums, out);
    case Dtype::f16:
      return finish_as<F16>(how, sums, out);
    case Dtype::s8:
      break;  // refused before
  }
}

constexpr Loops kPortable = {.name = "portable",
                             .needs = base::InstructionSet::basic,
                             .transpose = transpose,
                             .interleave = interleave,
                             .widen_bf16 = widen<Bf16>,
                             .widen_f16 = widen<F16>,
                             .s8_to_f32 = to_f32<8>,
                             .s4_to_f32 = to_f32<4>,
                             .s8_to_bf16 = to_bf16<8>,
                             .s4_to_bf16 = to_bf16<4>,
                             .add_to_leaves = add_to_leaves,
                             .finish = finish};

}  // namespace

const Loops& portable_loops() { return kPortable; }

const Loops& loops() {
  for (const Loops* set : loop_sets()) {
    if (base::may_use(set->needs)) return *set;
  }
  return kPortable;
}

}  // namespace plait::gemm
