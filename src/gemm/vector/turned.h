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
// up the last step. A Set is what plain.h needs. One with twice(), broadcast_two() and interleave()
// fills half a register of rows by two outputs.
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

// Lines of two rows of the weight beside each other, as operands: four words of both, four of the
// next ones, and so on, of which the two last of all fours come behind the two first.
template <class Set, class Format>
struct alignas(64) PairsOfLines {
  static constexpr int kPairs = Set::kLanes / 2;
  static constexpr std::int64_t kWords = Lines<Set, Format, 1>::kWords;

  float words[kPairs][2 * kWords];  // NOLINT(*-avoid-c-arrays)

  [[gnu::always_inline]] void read(const FourthRows& rows) {
    using Vector = typename Set::Vector;
    Lines<Set, Format, Set::kLanes> lines;  // NOLINT(*-member-init): read() writes it
    lines.read(rows);
#pragma GCC unroll 8
    for (int j = 0; j < kPairs; ++j) {
      auto* to = reinterpret_cast<Vector*>(words[j]);
#pragma GCC unroll 2
      for (int v = 0; v < kWords / Set::kLanes; ++v)
        Set::interleave(reinterpret_cast<const Vector*>(lines.words[2 * j])[v],
                        reinterpret_cast<const Vector*>(lines.words[2 * j + 1])[v], to + 2 * v);
    }
  }
};

// A register and a half of rows: the half is filled by two outputs. First come the sums of kLanes
// outputs, then those of the pairs.
template <class Set>
inline constexpr int kSumsOfHalves = Set::kLanes + Set::kLanes / 2;

// Adds rows by word `w` of four, 0 to 3, of each output.
template <class Set, int w>
[[gnu::always_inline]] inline void add_halves(const float* words, std::int64_t pair_stride,
                                              typename Set::Vector whole, typename Set::Vector half,
                                              typename Set::Vector (&sums)[kSumsOfHalves<Set>][1]) {
#pragma GCC unroll 8
  for (int j = 0; j < Set::kLanes / 2; ++j) {
    const float* two = words + j * pair_stride + w / 2 * Set::kLanes + w % 2 * 2;
    sums[2 * j][0] = Set::multiply_add(whole, Set::broadcast(two[0]), sums[2 * j][0]);
    sums[2 * j + 1][0] = Set::multiply_add(whole, Set::broadcast(two[1]), sums[2 * j + 1][0]);
    auto& both = sums[Set::kLanes + j][0];
    both = Set::multiply_add(half, Set::broadcast_two(two), both);
  }
}

// Adds a leaf to the sums of kLanes outputs.
template <class Set, class Format>
[[gnu::always_inline]] inline void add_pairs(const PlainCall& call, std::int64_t row,
                                             std::int64_t column, Range k,
                                             typename Set::Vector (&sums)[kSumsOfHalves<Set>][1]) {
  using Vector = typename Set::Vector;
  using Block = PairsOfLines<Set, Format>;
  constexpr int kLanes = Set::kLanes;
  static_assert(kLanes == 16, "the fours of PairsOfLines are read as 16 lanes interleave them");
  constexpr std::int64_t kBytes = element_bytes<Format>();
  constexpr std::int64_t kSquareK = kSquareWords * Format::kWordK;
  const std::int64_t there = std::min<std::int64_t>(kLanes, call.columns - column);
  const std::byte* at = call.weight + column * call.weight_stride + k.begin * kBytes;
  const std::int64_t line = k.begin * Format::kXBytes / Format::kWordK / 4;
  const std::byte* x = call.rows + line * call.row_stride + row * 4;
  const std::int64_t stride = call.weight_stride;
  std::int64_t three = 3 * stride;
  asm("" : "+r"(three));
  constexpr bool kPairs = kHasPairs<Set, Format>;
  [[maybe_unused]] unsigned before = 0;
  if constexpr (kPairs) before = Set::hold(sums);
  Block block;  // NOLINT(*-member-init): written before it is read
  for (; k.begin < k.end; k.begin += kSquareK, at += 64) {
    if (k.begin + kSquareK <= call.k && there == kLanes) {
      FourthRows::from<kLanes>(at + kPlainAhead, stride, three).template ask<kLanes>();
      block.read(FourthRows::from<kLanes>(at, stride, three));
    } else {
      Edge edge;  // NOLINT(*-member-init): copy() writes it
      const std::int64_t some = std::clamp<std::int64_t>((call.k - k.begin) * kBytes, 0, 64);
      edge.copy(at, stride, there, some, 64, std::int64_t{kLanes} * 64);
      block.read(FourthRows::from<kLanes>(edge.bytes, 64, 192));
    }
    constexpr std::int64_t kPairStride = 2 * Block::kWords;
    for (std::int64_t four = 0; four < Block::kWords / 4; ++four) {
      const float* words = block.words[0] + four / 4 * 2 * kLanes + four % 4 * 4;
      const auto add = [&]<int w>(auto part) __attribute__((always_inline)) {
        constexpr int kPart = decltype(part)::value;
        Vector whole = Lanes<Set>::load(x);
        Vector half = Set::twice(x + sizeof(Vector));
        if constexpr (kPairs) {
          whole = Set::template part_of<kPart>(whole);
          half = Set::template part_of<kPart>(half);
        }
        add_halves<Set, w>(words, kPairStride, whole, half, sums);
      };
      const std::integral_constant<int, 0> even;
      const std::integral_constant<int, 1> odd;
      if constexpr (kPairs) {
        add.template operator()<1>(odd);
        add.template operator()<0>(even);
        x += call.row_stride;
        add.template operator()<3>(odd);
        add.template operator()<2>(even);
        x += call.row_stride;
      } else {
        add.template operator()<0>(even);
        x += call.row_stride;
        add.template operator()<1>(even);
        x += call.row_stride;
        add.template operator()<2>(even);
        x += call.row_stride;
        add.template operator()<3>(even);
        x += call.row_stride;
      }
    }
  }
  if constexpr (kPairs) Set::let_go(sums, before);
}

// Adds the nodes below a leaf to the sums of some rows, and stores them.
template <class Set>
void store_rows(const PlainCall& call, std::int64_t row, std::int64_t column, std::int64_t leaf,
                typename Set::Vector* rows) {
  using Vector = typename Set::Vector;
  const std::int64_t there = std::min<std::int64_t>(Set::kLanes, call.row_count - row);
  for (std::int64_t r = 0; r < there; ++r) {
    float* slot = sums_at(call, column) + (row + r) * kPanelColumns;
    for (int below = Leaves::slot_of(leaf); below > 0; --below, slot += call.slot_stride)
      rows[r] = *reinterpret_cast<const Vector*>(slot) + rows[r];
    *reinterpret_cast<Vector*>(slot) = rows[r];
  }
}

// A leaf of kLanes outputs, of which the last few may be missing, by a register and a half of rows.
template <class Set, class Format>
void multiply_halves(const PlainCall& call, std::int64_t row, std::int64_t column,
                     std::int64_t leaf, Range k) {
  using Vector = typename Set::Vector;
  constexpr int kLanes = Set::kLanes;
  Vector sums[kSumsOfHalves<Set>][1] = {};  // NOLINT(*-avoid-c-arrays)
  add_pairs<Set, Format>(call, row, column, k, sums);
  Vector leaf_sums[kSumsOfHalves<Set>];  // NOLINT(*-avoid-c-arrays)
  std::memcpy(leaf_sums, sums, sizeof(sums));
  Vector rows[kLanes];  // NOLINT(*-avoid-c-arrays)
  const auto* square = reinterpret_cast<const std::byte*>(leaf_sums);
  Set::turn(FourthRows::from<kLanes>(square, sizeof(Vector), 3 * sizeof(Vector)), rows);
  store_rows<Set>(call, row, column, leaf, rows);
  const std::byte* pairs = square + kLanes * sizeof(Vector);
  for (std::int64_t r = 0; r < kLanes / 2; ++r) {
    for (std::int64_t j = 0; j < kLanes / 2; ++j)
      std::memcpy(reinterpret_cast<std::byte*>(rows + r) + j * 8,
                  pairs + j * static_cast<std::int64_t>(sizeof(Vector)) + r * 8, 8);
  }
  store_rows<Set>(call, row + kLanes, column, leaf, rows);
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
    store_rows<Set>(call, row, column, leaf, rows);
  }
}

// Rows pass by in groups of one register, one and a half, or two.
template <class Set, class Format>
void multiply_turned(const PlainCall& call) {
  constexpr std::int64_t kLanes = Set::kLanes;
  Range k = {0, 0};
  for (std::size_t at = 0; at < call.leaves.size(); ++at) {
    const auto leaf = static_cast<std::int64_t>(at);
    k = {k.end, k.end + call.leaves[at]};
    for (std::int64_t column = 0; column < call.columns; column += kLanes) {
      std::int64_t row = 0;
      while (row < call.row_count) {
        const std::int64_t rest = call.row_count - row;
        if constexpr (requires { &Set::twice; }) {
          const std::int64_t halves = (rest + kLanes / 2 - 1) / (kLanes / 2);
          if (halves == 3) {
            multiply_halves<Set, Format>(call, row, column, leaf, k);
            break;
          }
          if (halves == 5) {
            multiply_turned<Set, Format, 1>(call, row, column, leaf, k);
            row += kLanes;
            continue;
          }
        }
        const bool one = rest <= kLanes;
        (one ? multiply_turned<Set, Format, 1> : multiply_turned<Set, Format, 2>)(call, row, column,
                                                                                  leaf, k);
        row += 2 * kLanes;
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
