// Nine to 64 rows by a weight that is not packed and whose rows are outputs, made by one file for
// each instruction set.
//
// The lanes of a register are rows of X, which was turned once for the whole product, and each word
// of the weight is multiplied by all of them. So the weight needs no turning: its lines are copied
// to the first cache, where rows a power of two of bytes apart don't drive one another out, and
// words that are no operands are widened on the way.
//
// A set that multiplies one bf16 of a pair after the other has X in pairs, and widens both.
//
// Each element takes k in the order of the kernel for packed weights, the zeros included that fill
// up the last step. A Set is what plain.h needs.
#pragma once

#include <algorithm>
#include <type_traits>

#include "gemm/vector/plain.h"
#include "gemm/vector/squares.h"
#include "plait/gemm.h"

namespace plait::gemm::vector {

// Lines of a few rows of the weight, as operands.
template <class Set, class Format, int Outputs>
struct alignas(64) Lines {
  using Vector = typename Set::Vector;
  static constexpr std::int64_t kLine = 64;
  static constexpr std::int64_t kK = kSquareWords * Format::kWordK;  // of a line
  static constexpr std::int64_t kWords = kSquareWords * Format::kParts;

  float words[Outputs][kWords];  // NOLINT(*-avoid-c-arrays)

  [[gnu::always_inline]] void read(const FourthRows& rows) {
    constexpr std::int64_t kBytes = 4 / Format::kParts * Set::kLanes;
#pragma GCC unroll 16
    for (std::int64_t j = 0; j < Outputs; ++j) {
      const std::byte* row = rows.of[j / 4] + (j % 4 == 3 ? rows.three : j % 4 * rows.stride);
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kWords / Set::kLanes; ++v) {
        const std::byte* at = row + v * kBytes;
        Vector some;  // NOLINT(*-init-variables)
        if constexpr (Format::kParts == 1) {
          some = Lanes<Set>::load(at);
        } else {
          some = Format::template straight<0>(at, 0);
        }
        reinterpret_cast<Vector*>(words[j])[v] = some;
      }
    }
  }
};

// Adds rows by a word of each output.
template <class Set, int Outputs, int Vectors, std::size_t Words, class Rows>
[[gnu::always_inline]] inline void add_word(const float (&words)[Outputs][Words], std::int64_t w,
                                            typename Set::Vector (&sums)[Outputs][Vectors],
                                            const Rows& rows) {
  typename Set::Vector x[Vectors];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) x[v] = rows(v);
#pragma GCC unroll 16
  for (int j = 0; j < Outputs; ++j) {
    const auto same = Set::broadcast(words[j][w]);
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sums[j][v] = Set::multiply_add(x[v], same, sums[j][v]);
  }
}

// Adds a leaf to the sums of a few columns, rows beside each other.
template <class Set, class Format, int Outputs, int Vectors>
[[gnu::always_inline]] inline void add_lines(const PlainCall& call, std::int64_t row,
                                             std::int64_t column, Range k,
                                             typename Set::Vector (&sums)[Outputs][Vectors]) {
  using Vector = typename Set::Vector;
  using Block = Lines<Set, Format, Outputs>;
  constexpr std::int64_t kBytes = element_bytes<Format>();
  const std::int64_t there = std::min<std::int64_t>(Outputs, call.columns - column);
  const std::byte* at = call.weight + column * call.weight_stride + k.begin * kBytes;
  const std::int64_t words = k.begin * Format::kXBytes / Format::kWordK / 4;
  const std::byte* x = call.rows + words * call.row_stride + row * 4;
  const std::int64_t stride = call.weight_stride;
  std::int64_t three = 3 * stride;
  asm("" : "+r"(three));
  constexpr bool kPairs = kHasPairs<Set, Format>;
  [[maybe_unused]] unsigned before = 0;
  if constexpr (kPairs) before = Set::hold(sums);
  Block lines[2];  // NOLINT(*-avoid-c-arrays,*-member-init): written before they are read
  for (std::int64_t i = 0; k.begin < k.end; k.begin += Block::kK, at += 64, ++i) {
    Block& block = lines[i % 2];
    if (k.begin + Block::kK <= call.k && there == Outputs) {
      FourthRows::from<Outputs>(at + kPlainAhead, stride, three).template ask<Outputs>();
      block.read(FourthRows::from<Outputs>(at, stride, three));
    } else {
      Edge edge;  // NOLINT(*-member-init): copy() writes it
      const std::int64_t some = std::clamp<std::int64_t>((call.k - k.begin) * kBytes, 0, 64);
      edge.copy(at, stride, std::max<std::int64_t>(there, 0), some, 64, std::int64_t{Outputs} * 64);
      block.read(FourthRows::from<Outputs>(edge.bytes, 64, 192));
    }
#pragma GCC unroll 2
    for (std::int64_t w = 0; w < Block::kWords; x += call.row_stride) {
      const auto* rows = reinterpret_cast<const Vector*>(x);
      if constexpr (kPairs) {
        add_word<Set>(block.words, w + 1, sums,
                      [rows](int v) { return Set::template part_of<1>(rows[v]); });
        add_word<Set>(block.words, w, sums,
                      [rows](int v) { return Set::template part_of<0>(rows[v]); });
      } else {
        add_word<Set>(block.words, w, sums, [rows](int v) { return rows[v]; });
      }
      w += kPairs ? 2 : 1;
    }
  }
  if constexpr (kPairs) Set::let_go(sums, before);
}

// A leaf of kLanes outputs, of which the last few may be missing, by rows from `row` on.
template <class Set, class Format, int Vectors>
void multiply_turned(const PlainCall& call, std::int64_t row, std::int64_t column,
                     std::int64_t leaf, Range k) {
  using Vector = typename Set::Vector;
  constexpr int kLanes = Set::kLanes;
  constexpr int kOutputs = Set::outputs(Vectors);
  Vector leaf_sums[kLanes][Vectors];  // NOLINT(*-avoid-c-arrays)
  for (int first = 0; first < kLanes; first += kOutputs) {
    Vector sums[kOutputs][Vectors] = {};  // NOLINT(*-avoid-c-arrays)
    add_lines<Set, Format>(call, row, column + first, k, sums);
    std::memcpy(leaf_sums[first], sums, sizeof(sums));
  }
  constexpr std::int64_t kStride = sizeof(leaf_sums[0]);
  for (std::int64_t v = 0; v < Vectors; ++v, row += kLanes) {
    Vector rows[kLanes];  // NOLINT(*-avoid-c-arrays)
    const auto* square = reinterpret_cast<const std::byte*>(&leaf_sums[0][v]);
    Set::turn(FourthRows::from<kLanes>(square, kStride, 3 * kStride), rows);
    const std::int64_t there = std::min<std::int64_t>(kLanes, call.row_count - row);
    for (std::int64_t r = 0; r < there; ++r) {
      float* slot = sums_at(call, column) + (row + r) * kPanelColumns;
      for (int below = Leaves::slot_of(leaf); below > 0; --below, slot += call.slot_stride)
        rows[r] = *reinterpret_cast<const Vector*>(slot) + rows[r];
      *reinterpret_cast<Vector*>(slot) = rows[r];
    }
  }
}

template <class Set, class Format>
void multiply_turned(const PlainCall& call) {
  constexpr std::int64_t kRows = 2 * Set::kLanes;
  Range k = {0, 0};
  for (std::size_t leaf = 0; leaf < call.leaves.size(); ++leaf) {
    k = {k.end, k.end + call.leaves[leaf]};
    for (std::int64_t column = 0; column < call.columns; column += Set::kLanes) {
      for (std::int64_t row = 0; row < call.row_count; row += kRows) {
        const bool one = call.row_count - row <= Set::kLanes;
        (one ? multiply_turned<Set, Format, 1>
             : multiply_turned<Set, Format, 2>)(call, row, column, static_cast<std::int64_t>(leaf),
                                                k);
      }
    }
  }
}

// The functions of a Set, of which one without outputs() turns no rows.
template <class Set, class Format>
PlainRows plain_rows() {
  PlainRows rows = {.max_rows = kMostPlainRows, .multiply = multiply_plain<Set, Format>};
  if constexpr (requires { Set::outputs(1); }) {
    rows.max_turned = kMostTurnedRows;
    rows.multiply_turned = multiply_turned<Set, Format>;
    // f16 would be widened again for each group of rows.
    constexpr bool kSquares = !std::is_same_v<Format, F16ToF32<Set>>;
    if constexpr (kSquares && requires { Set::kRowsOfSquares; }) {
      rows.lanes = Set::kLanes;
      rows.multiply_squares = multiply_squares<Set, Format>;
    }
  }
  return rows;
}

template <class Set>
PlainRows plain_rows(Storage storage) {
  if (storage == Storage::f32) return plain_rows<Set, AsIs<Set>>();
  if (storage == Storage::bf16) return plain_rows<Set, Bf16ToF32<Set>>();
  if constexpr (requires { &Set::widen_f16; }) {
    if (storage == Storage::f16) return plain_rows<Set, F16ToF32<Set>>();
  }
  return {};
}

}  // namespace plait::gemm::vector
