// Few rows by a weight that is not packed, made by one file for each instruction set.
//
// The weight is read once, where it lies, and no panel is written. If its rows are outputs, squares
// of words are turned in registers: kLanes outputs by kLanes words of k. If its rows are k, they
// have the order of a panel already, and a few of them pass by at a time, in long runs. A word is
// what a lane of a panel holds: an f32, or a pair of 16-bit elements.
//
// Each element takes k in the order of the kernel for packed weights, the zeros included that fill
// up the last step: adding a product of zeros makes 0 of -0.
//
// A Set is what rows.h needs, and turn(). Formats are in words.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "gemm/kernel.h"
#include "gemm/leaves.h"
#include "gemm/vector/fourth_rows.h"
#include "gemm/vector/words.h"

namespace plait::gemm::vector {

// A line of memory is this many words.
inline constexpr int kSquareWords = 16;

inline constexpr int kMostPlainRows = 8;

// Lines of the weight's rows are asked for this many bytes ahead.
inline constexpr std::int64_t kPlainAhead = 512;

// Adds rows by the words that `words(w, v, part)` gives, w from 0 to Count.
template <class Set, class Format, int Count, int Rows, int Vectors, class Words>
[[gnu::always_inline]] inline void add_words(const std::byte* x, std::int64_t row_stride,
                                             const Words& words,
                                             typename Set::Vector (&sums)[Rows][Vectors]) {
  using Vector = typename Set::Vector;
  const auto add = [&]<int part>(Vector(&to)[Rows][Vectors],
                                 std::int64_t w) __attribute__((always_inline)) {
    Vector weight[Vectors];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) weight[v] = words.template operator()<part>(w, v);
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < Rows; ++r) {
      const Vector same = Format::template x<part>(x + r * row_stride + w * Format::kXBytes);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) to[r][v] = Set::multiply_add(same, weight[v], to[r][v]);
    }
  };
  if constexpr (Format::kChains) {
    static_assert(Count * Format::kWordK == kKStep, "a chain is as long as a step");
    Vector even[Rows][Vectors] = {};  // NOLINT(*-avoid-c-arrays)
    Vector odd[Rows][Vectors] = {};   // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 16
    for (std::int64_t w = 0; w < Count; ++w) {
      add.template operator()<0>(even, w);
      add.template operator()<1>(odd, w);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[r][v] = sums[r][v] + (even[r][v] + odd[r][v]);
    }
  } else {
#pragma GCC unroll 16
    for (std::int64_t w = 0; w < Count; ++w) {
      if constexpr (kHasPairs<Set, Format>) add.template operator()<1>(sums, w);
      add.template operator()<0>(sums, w);
      if constexpr (Format::kParts == 2 && !kHasPairs<Set, Format>)
        add.template operator()<1>(sums, w);
    }
  }
}

template <class Format>
constexpr std::int64_t element_bytes() {
  return 4 / Format::kWordK;
}

// The place at which the sums of a column begin, of the first row.
inline float* sums_at(const PlainCall& call, std::int64_t column) {
  return call.sums + column / kPanelColumns * call.row_count * kPanelColumns +
         column % kPanelColumns;
}

inline const std::byte* x_at(const PlainCall& call, std::int64_t k, std::int64_t k_bytes) {
  return call.rows + k / kKStep * call.step_stride + k % kKStep * k_bytes;
}

// A leaf's sums: the nodes below are added, and the result goes to its slot.
template <class Set, int Rows, int Vectors>
[[gnu::always_inline]] inline void store_leaf(const PlainCall& call, std::int64_t column,
                                              std::int64_t leaf,
                                              typename Set::Vector (&sums)[Rows][Vectors]) {
  using Vector = typename Set::Vector;
  float* slot = sums_at(call, column);
  for (int below = Leaves::slot_of(leaf); below > 0; --below, slot += call.slot_stride) {
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < Rows; ++r) {
      const auto* node = reinterpret_cast<const Vector*>(slot + r * kPanelColumns);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[r][v] = node[v] + sums[r][v];
    }
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      reinterpret_cast<Vector*>(slot + r * kPanelColumns)[v] = sums[r][v];
  }
}

// A copy of a block at the weight's edge, with zeros in place of what lies beyond.
struct alignas(64) Edge {
  std::byte bytes[kKStep * kPanelColumns * sizeof(float)];  // NOLINT(*-avoid-c-arrays)

  // `rows` rows of `row_bytes` bytes, `to_stride` apart, in a block of `all` bytes.
  void copy(const std::byte* from, std::int64_t stride, std::int64_t rows, std::int64_t row_bytes,
            std::int64_t to_stride, std::int64_t all) {
    std::memset(bytes, 0, static_cast<std::size_t>(all));
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(bytes + i * to_stride, from + i * stride, static_cast<std::size_t>(row_bytes));
  }
};

// Rows by Groups times kLanes outputs, of which the last few may be missing.
template <class Set, class Format, int Rows, int Groups>
void multiply_outputs(const PlainCall& call, std::int64_t column) {
  using Vector = typename Set::Vector;
  constexpr int kLanes = Set::kLanes;
  constexpr std::int64_t kBytes = element_bytes<Format>();
  constexpr std::int64_t kSquareK = kSquareWords * Format::kWordK;
  constexpr std::int64_t kXOfK = Format::kXBytes / Format::kWordK;
  const std::int64_t stride = call.weight_stride;
  const std::byte* weight = call.weight + column * stride;
  const std::int64_t there = std::min<std::int64_t>(kLanes, call.columns - column);
  const std::int64_t bytes = call.k * kBytes;
  // Behind the end of these rows come the next ones.
  const std::int64_t wrap = std::int64_t{Groups} * kLanes * stride - bytes;
  std::int64_t k = 0;
  for (std::size_t leaf = 0; leaf < call.leaves.size(); ++leaf) {
    Vector sums[Groups][Rows][1] = {};  // NOLINT(*-avoid-c-arrays)
    [[maybe_unused]] unsigned before = 0;
    if constexpr (kHasPairs<Set, Format>) {
      static_assert(Groups == 1, "one group of sums is held");
      before = Set::hold(sums[0]);
    }
    for (const std::int64_t end = k + call.leaves[leaf]; k < end; k += kSquareK) {
      const bool whole = k + kSquareK <= call.k && there == kLanes;
      const std::byte* x = x_at(call, k, kXOfK);
      const std::byte* at = weight + k * kBytes;
      const std::byte* ahead = at + kPlainAhead + (k * kBytes + kPlainAhead < bytes ? 0 : wrap);
#pragma GCC unroll 8
      for (std::int64_t group = 0; group < Groups; ++group) {
        const std::byte* from = at + group * kLanes * stride;
        // Left alone, gcc 12 keeps X on the stack for the next group, and shuffles to spread it.
        const std::byte* group_x = x;
        asm("" : "+r"(group_x));
        std::int64_t from_stride = stride;
        std::int64_t three = 3 * stride;
        asm("" : "+r"(three));
        Edge edge;  // NOLINT(*-member-init): written if it is read
        if (!whole) {
          const std::int64_t some = std::clamp<std::int64_t>((call.k - k) * kBytes, 0, 64);
          edge.copy(from, stride, there, some, 64, std::int64_t{kLanes} * 64);
          from = edge.bytes;
          from_stride = 64;
          three = 192;
        }
        // Two lines of half the rows take less time than a line of all of them. Four rows are few
        // enough for the processor's own prefetching.
        const std::int64_t odd = k / kSquareK % 2;
        const std::byte* half = ahead + group * kLanes * stride + odd * (kLanes / 2 * stride - 64);
        for (std::int64_t line = 0; kLanes > 4 && line < 128; line += 64)
          FourthRows::from<kLanes / 2>(half + line, stride, three).template ask<kLanes / 2>();
#pragma GCC unroll 4
        for (std::int64_t w = 0; w < kSquareWords; w += kLanes) {
          Vector square[kLanes];  // NOLINT(*-avoid-c-arrays)
          Set::turn(FourthRows::from<kLanes>(from + w * 4, from_stride, three), square);
          if constexpr (kPartsHalves<Set, Format>) {
#pragma GCC unroll 16
            for (Vector& word : square) word = Set::part_halves(word);
            asm("" : "+m"(square));
          }
          const auto words = [&]<int part>(std::int64_t i, int /*v*/)
                                 __attribute__((always_inline)) {
                                   if constexpr (kPartsHalves<Set, Format>)
                                     return Format::template part_of_parted<part>(square[i]);
                                   else
                                     return Format::template part_of<part>(square[i]);
                                 };
          add_words<Set, Format, kLanes>(group_x + w * Format::kXBytes, call.row_stride, words,
                                         sums[group]);
        }
      }
    }
    if constexpr (kHasPairs<Set, Format>) Set::let_go(sums[0], before);
#pragma GCC unroll 8
    for (std::int64_t group = 0; group < Groups; ++group)
      store_leaf<Set>(call, column + group * kLanes, static_cast<std::int64_t>(leaf), sums[group]);
  }
}

template <class Set, class Format, int Rows>
void multiply_outputs(const PlainCall& call) {
  // Halves that are parted take longer than sums wait for one another.
  constexpr int kGroups = kPartsHalves<Set, Format> ? 1 : Set::groups(Rows, Format::kParts);
  std::int64_t column = 0;
  for (; column + kGroups * Set::kLanes <= call.columns; column += kGroups * Set::kLanes)
    multiply_outputs<Set, Format, Rows, kGroups>(call, column);
  for (; column < call.columns; column += Set::kLanes)
    multiply_outputs<Set, Format, Rows, 1>(call, column);
}

// Some k of all columns: their place, and their part in a leaf's sums.
struct PlainStep {
  std::int64_t k;
  std::int64_t leaf;
  bool first;              // of the leaf
  const std::byte* ahead;  // the first column of the next step, or of the next columns
};

// How many rows of k pass by at a time: few, so that memory sees long runs side by side, but more
// if there are more sums to be read and written again. The order of AMX takes whole steps.
template <class Format>
constexpr std::int64_t inputs_at_once(int rows) {
  return Format::kChains || rows > 4 ? kKStep : rows > 2 ? 16 : 8;
}

// Rows by Vectors times kLanes columns of a step of k, of which the last few may be missing.
template <class Set, class Format, int Rows, int Vectors>
void multiply_step(const PlainCall& call, const PlainStep& step, std::int64_t column) {
  using Vector = typename Set::Vector;
  constexpr std::int64_t kBytes = element_bytes<Format>();
  constexpr std::int64_t kColumns = Vectors * Set::kLanes;
  constexpr std::int64_t kXOfK = Format::kXBytes / Format::kWordK;
  constexpr std::int64_t kInputs = inputs_at_once<Format>(Rows);
  const std::int64_t there = std::min<std::int64_t>(kColumns, call.columns - column);
  const std::int64_t rows = std::clamp<std::int64_t>(call.k - step.k, 0, kInputs);
  const std::byte* from = call.weight + step.k * call.weight_stride + column * kBytes;
  std::int64_t stride = call.weight_stride;
  Edge edge;  // NOLINT(*-member-init): written if it is read
  if (rows < kInputs || there < kColumns) {
    edge.copy(from, stride, rows, there * kBytes, kColumns * kBytes, kInputs * kColumns * kBytes);
    from = edge.bytes;
    stride = kColumns * kBytes;
  }
  float* to = sums_at(call, column) + Leaves::slot_of(step.leaf) * call.slot_stride;
  Vector sums[Rows][Vectors];  // NOLINT(*-avoid-c-arrays)
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      sums[r][v] =
          step.first ? Vector{} : reinterpret_cast<const Vector*>(to + r * kPanelColumns)[v];
  }
  const std::byte* ahead = step.ahead + column * kBytes;
  for (std::int64_t i = 0; i < kInputs; ++i, ahead += call.weight_stride) {
#pragma GCC unroll 4
    for (std::int64_t line = 0; line < kColumns * kBytes; line += 64)
      __builtin_prefetch(ahead + line, /*rw=*/0, /*locality=*/2);
  }
  const auto words = [&]<int part>(std::int64_t i, int v) __attribute__((always_inline)) {
    return Format::template straight<part>(
        from + i * Format::kWordK * stride + v * Set::kLanes * kBytes, stride);
  };
  add_words<Set, Format, kInputs / Format::kWordK>(x_at(call, step.k, kXOfK), call.row_stride,
                                                   words, sums);
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      reinterpret_cast<Vector*>(to + r * kPanelColumns)[v] = sums[r][v];
  }
}

// Adds the nodes below to the sums of a leaf in its slot.
template <class Set>
void add_nodes(const PlainCall& call, std::int64_t leaf) {
  using Vector = typename Set::Vector;
  const int slot = Leaves::slot_of(leaf);
  for (std::int64_t column = 0; slot > 0 && column < call.columns; column += Set::kLanes) {
    for (std::int64_t r = 0; r < call.row_count; ++r) {
      float* node = sums_at(call, column) + r * kPanelColumns;
      auto* to = reinterpret_cast<Vector*>(node + slot * call.slot_stride);
      Vector sum = *to;
      for (int below = slot; below > 0; --below, node += call.slot_stride)
        sum = *reinterpret_cast<const Vector*>(node) + sum;
      *to = sum;
    }
  }
}

template <class Set, class Format, int Rows>
void multiply_inputs(const PlainCall& call) {
  constexpr int kVectors = Set::vectors_of_step(Rows);
  constexpr std::int64_t kInputs = inputs_at_once<Format>(Rows);
  PlainStep step = {.k = 0, .leaf = 0, .first = true, .ahead = nullptr};
  for (; step.leaf < static_cast<std::int64_t>(call.leaves.size()); ++step.leaf) {
    const std::int64_t begin = step.k;
    [[maybe_unused]] unsigned before = 0;
    if constexpr (kHasPairs<Set, Format>) before = Set::hold();
    for (const std::int64_t end = begin + call.leaves[static_cast<std::size_t>(step.leaf)];
         step.k < end; step.k += kInputs) {
      step.first = step.k == begin;
      step.ahead = step.k + kInputs < call.k ? call.weight + (step.k + kInputs) * call.weight_stride
                                             : call.weight + call.columns * element_bytes<Format>();
      for (std::int64_t column = 0; column < call.columns; column += kVectors * Set::kLanes)
        multiply_step<Set, Format, Rows, kVectors>(call, step, column);
    }
    if constexpr (kHasPairs<Set, Format>) Set::let_go(before);
    add_nodes<Set>(call, step.leaf);
  }
}

// `Rows` rows or fewer.
template <class Set, class Format, int Rows>
void multiply_plain_rows(const PlainCall& call) {
  if constexpr (Rows > 1) {
    if (call.row_count < Rows) return multiply_plain_rows<Set, Format, Rows - 1>(call);
  }
  (call.out_in ? multiply_outputs<Set, Format, Rows> : multiply_inputs<Set, Format, Rows>)(call);
}

template <class Set, class Format>
void multiply_plain(const PlainCall& call) {
  multiply_plain_rows<Set, Format, kMostPlainRows>(call);
}

}  // namespace plait::gemm::vector
