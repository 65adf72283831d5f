// Nine to 62 rows that would leave lanes of turned.h idle, by a weight that is not packed and whose
// rows are outputs, made by one file for each instruction set.
//
// Squares of the weight are turned to the first cache, a few at a time, and groups of rows are
// multiplied by them there. So the weight is turned once, whatever the number of rows, and no lane
// is idle. X was turned as for turned.h: all rows of a word are beside each other, and one address
// leads to them.
//
// Each element takes k in the order of the kernel for packed weights, the zeros included that fill
// up the last step. A Set is what plain.h needs, and kRowsOfSquares: how many rows' sums it holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "gemm/vector/plain.h"
#include "plait/gemm.h"

namespace plait::gemm::vector {

inline constexpr int kMostTurnedRows = 64;

// The weight's columns that are multiplied at once are so many vectors.
inline constexpr int kSquareVectors = 2;

// Words of k that are turned at once.
inline constexpr std::int64_t kWordsTurned = std::int64_t{2} * kSquareWords;

// Some rows by `count` turned words of each column.
template <class Set>
struct TurnedWords {
  using Vectors = typename Set::Vector[kSquareVectors];  // NOLINT(*-avoid-c-arrays)
  const std::byte* x;                                    // a line of each k, or of each pair
  std::int64_t stride;                                   // bytes from one line to the next
  std::int64_t count;
  const Vectors* words;
  Vectors* sums;  // of each row
};

template <class Set, class Format, int Rows>
void add_turned_words(const TurnedWords<Set>& call) {
  using Vector = typename Set::Vector;
  constexpr std::int64_t kLines = Format::kXBytes / 4;
  const TurnedWords<Set> at = call;
  Vector sums[Rows][kSquareVectors];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kSquareVectors; ++v) sums[r][v] = at.sums[r][v];
  }
  const std::byte* x = at.x;
  const auto add = [&]<int part>(const Vector* words) __attribute__((always_inline)) {
    Vector weight[kSquareVectors];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 2
    for (int v = 0; v < kSquareVectors; ++v) weight[v] = Format::template part_of<part>(words[v]);
    const std::byte* line = x + (kLines == 2 ? part * at.stride : 0);
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < Rows; ++r) {
      const Vector same = Lanes<Set>::broadcast(line + 4 * r);
#pragma GCC unroll 2
      for (int v = 0; v < kSquareVectors; ++v)
        sums[r][v] = Set::multiply_add(same, weight[v], sums[r][v]);
    }
  };
  for (std::int64_t w = 0; w < at.count; ++w, x += kLines * at.stride) {
    if constexpr (kHasPairs<Set, Format>) add.template operator()<1>(at.words[w]);
    add.template operator()<0>(at.words[w]);
    if constexpr (Format::kParts == 2 && !kHasPairs<Set, Format>)
      add.template operator()<1>(at.words[w]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kSquareVectors; ++v) at.sums[r][v] = sums[r][v];
  }
}

// The functions for half of the rows that a set holds, and more: groups are about equal.
template <class Set, class Format, int... More>
constexpr auto adders_of_turned_words(std::integer_sequence<int, More...> /*rows*/) {
  return std::array{&add_turned_words<Set, Format, Set::kRowsOfSquares / 2 + More>...};
}

// Turns `count` words from `k` on of kLanes outputs, of which the last few may be missing.
template <class Set, class Format>
[[gnu::always_inline]] inline void turn_words(const PlainCall& call, std::int64_t column,
                                              std::int64_t k, std::int64_t count, int vector,
                                              typename TurnedWords<Set>::Vectors* to) {
  using Vector = typename Set::Vector;
  constexpr int kLanes = Set::kLanes;
  constexpr std::int64_t kBytes = element_bytes<Format>();
  constexpr std::int64_t kSquareK = kSquareWords * Format::kWordK;
  const std::int64_t there = std::clamp<std::int64_t>(call.columns - column, 0, kLanes);
  const std::byte* at = call.weight + column * call.weight_stride + k * kBytes;
  for (std::int64_t done = 0; done < count; done += kSquareWords, k += kSquareK, at += 64) {
    const std::byte* from = at;
    std::int64_t stride = call.weight_stride;
    std::int64_t three = 3 * stride;
    asm("" : "+r"(three));
    Edge edge;  // NOLINT(*-member-init): written if it is read
    if (k + kSquareK <= call.k && there == kLanes) {
      FourthRows::from<kLanes>(at + kPlainAhead, stride, three).template ask<kLanes>();
    } else {
      const std::int64_t some = std::clamp<std::int64_t>((call.k - k) * kBytes, 0, 64);
      edge.copy(from, stride, there, some, 64, std::int64_t{kLanes} * 64);
      from = edge.bytes;
      stride = 64;
      three = 192;
    }
#pragma GCC unroll 2
    for (std::int64_t w = 0; w < kSquareWords; w += kLanes) {
      Vector square[kLanes];  // NOLINT(*-avoid-c-arrays)
      Set::turn(FourthRows::from<kLanes>(from + w * 4, stride, three), square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) to[done + w + i][vector] = square[i];
    }
  }
}

// Outputs from `column` on by k of a leaf.
template <class Set, class Format>
void add_squares(const PlainCall& call, std::int64_t column, Range k,
                 typename TurnedWords<Set>::Vectors* sums) {
  constexpr int kMost = Set::kRowsOfSquares;
  constexpr auto kAdders =
      adders_of_turned_words<Set, Format>(std::make_integer_sequence<int, kMost - kMost / 2 + 1>{});
  constexpr std::int64_t kLines = Format::kXBytes / 4;
  const int groups = (call.row_count + kMost - 1) / kMost;
  const int each = call.row_count / groups;
  const int more = call.row_count % groups;
  // NOLINTNEXTLINE(*-avoid-c-arrays,*-member-init): written before they are read
  typename TurnedWords<Set>::Vectors words[kWordsTurned];
  TurnedWords<Set> some = {
      .x = call.rows + k.begin / Format::kWordK * kLines * call.row_stride,
      .stride = call.row_stride,
      .count = 0,
      .words = words,
      .sums = sums,
  };
  for (; k.begin < k.end; k.begin += some.count * Format::kWordK) {
    some.count = std::min(kWordsTurned, (k.end - k.begin) / Format::kWordK);
    for (int v = 0; v < kSquareVectors; ++v)
      turn_words<Set, Format>(call, column + v * Set::kLanes, k.begin, some.count, v, words);
    TurnedWords<Set> group = some;
    for (int g = 0; g < groups; ++g) {
      const int rows = each + (g < more ? 1 : 0);
      kAdders[static_cast<std::size_t>(rows - kMost / 2)](group);
      group.x += std::ptrdiff_t{4} * rows;
      group.sums += rows;
    }
    some.x += some.count * kLines * call.row_stride;
  }
}

template <class Set, class Format>
void multiply_squares(const PlainCall& call) {
  using Vector = typename Set::Vector;
  typename TurnedWords<Set>::Vectors sums[kMostTurnedRows];  // NOLINT(*-avoid-c-arrays)
  Range k = {0, 0};
  for (std::size_t leaf = 0; leaf < call.leaves.size(); ++leaf) {
    k = {k.end, k.end + call.leaves[leaf]};
    for (std::int64_t column = 0; column < call.columns; column += kSquareVectors * Set::kLanes) {
      std::memset(sums, 0, static_cast<std::size_t>(call.row_count) * sizeof(sums[0]));
      if constexpr (kHasPairs<Set, Format>) {
        const unsigned before = Set::hold();
        add_squares<Set, Format>(call, column, k, sums);
        Set::let_go(before);
      } else {
        add_squares<Set, Format>(call, column, k, sums);
      }
      for (std::int64_t r = 0; r < call.row_count; ++r) {
        for (std::int64_t v = 0; v < kSquareVectors; ++v) {
          float* slot = sums_at(call, column) + r * kPanelColumns + v * Set::kLanes;
          Vector sum = sums[r][v];
          for (int below = Leaves::slot_of(static_cast<std::int64_t>(leaf)); below > 0;
               --below, slot += call.slot_stride)
            sum = *reinterpret_cast<const Vector*>(slot) + sum;
          *reinterpret_cast<Vector*>(slot) = sum;
        }
      }
    }
  }
}

}  // namespace plait::gemm::vector
