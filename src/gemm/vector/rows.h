// The loops of the vector kernel, made by one file for each instruction set.
//
// A Set says what its registers hold (Vector, kLanes, broadcast, multiply_add) and how many rows
// and vectors of a row it works on at once (kRows; vectors(rows)). One whose registers hold whole
// rows of a panel may have store(to, dtype, sums), which does what Loops::finish does with sums
// alone. A word is what a lane multiplies at once: an f32, or kWordK bf16. A set that multiplies
// one bf16 of a word after the other has part_of<part>(word) and widen(), and hold() and let_go()
// around what it adds up. One that multiplies several rows at once has multiply_block<Rows>(call,
// row, column) in place of multiply_add. Sets are types of unnamed namespaces, so that no code
// compiled for one processor is linked into what runs on another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gemm/kernel.h"
#include "gemm/leaves.h"

namespace plait::gemm::vector {

// Panels may come from memory, and a processor full of multiplications doesn't look far ahead, nor
// beyond a page. So the pass of a call's first rows asks for the lines that it needs itself this
// many words, 16 KiB, later: 16 rows get 1.5 times as fast by it. Only 4 KiB later, up to 4 rows
// would be slower by a tenth and more.
inline constexpr std::int64_t kAhead = 64;

// If the panel is surely in memory, one row or two ask for each line twice: 32 KiB before its use
// into the second cache, and 2 KiB before it into the first. They take a tenth less by it, but up
// to a tenth more if the panel is in a cache. Pieces (below) always do, by any number of rows.
inline constexpr int kMostFromMemory = 2;
inline constexpr std::int64_t kFarAhead = 128;
inline constexpr std::int64_t kNearAhead = 8;

// A set whose registers don't hold whole rows of a panel passes by it several times, each time by
// some of the columns. With few rows it does so for one piece of so many words after another, and
// asks memory for lines in their order and at an even pace: with AVX2, two to six rows get 1.3 to
// 2.9 times as fast, and 16 still 1.1 times.
inline constexpr std::int64_t kPieceWords = 64;
inline constexpr int kMostInPieces = 16;

inline constexpr int kLineWords = 16;
inline constexpr std::int64_t kLine = kLineWords * sizeof(float);

// A multiple of every set's kRows.
inline constexpr int kMaxRows = 96;

template <class Set>
concept Rounds =
    requires(void* to, const typename Set::Vector* sums) { Set::store(to, Dtype::bf16, sums); };

template <class Set>
inline constexpr bool kPassesAgain =
    Set::vectors(Set::kRows) * Set::kLanes < kPanelColumns &&
    !requires(const TileCall& call) { Set::template multiply_block<1>(call, 0, 0); };

// Words are multiplied in two parts, by rows of X in f32.
template <class Set>
concept Widens = requires(typename Set::Vector word) { Set::template part_of<0>(word); };

// The words of a row that are widened at once, and stay in the first cache.
inline constexpr std::int64_t kWidened = 128;

// The lines that passes prefetch while they compute, a few with each word. All passes of a call
// share what is read next, so that it is in the second cache by then: memory works while sums are
// added up.
struct Asked {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;  // of the row
  std::int64_t jump = 0;           // from one row's end to the next row
  std::int64_t bytes = 0;          // of a row
  std::int64_t share = 0;          // lines of a pass over all columns
  std::int64_t each = 0;           // lines with a word
  std::int64_t left = 0;           // lines of this pass

  // One pass reads its panel from memory itself.
  template <class Set>
  static Asked by(const TileCall& call) {
    const AheadRows& ahead = call.ahead;
    const std::int64_t words = call.k / Set::kWordK;
    if (ahead.rows == 0 || words == 0 || call.row_count <= Set::kRows) return {};
    const std::int64_t passes = (call.row_count + Set::kRows - 1) / Set::kRows;
    const std::int64_t lines = (ahead.bytes + kLine - 1) / kLine * ahead.rows;
    const std::int64_t share = (lines + passes - 1) / passes;
    const std::int64_t all_words = words * kPanelColumns / (Set::vectors(Set::kRows) * Set::kLanes);
    return {.at = ahead.first,
            .end = ahead.first + ahead.bytes,
            .jump = ahead.stride - ahead.bytes,
            .bytes = ahead.bytes,
            .share = share,
            .each = (share + all_words - 1) / all_words};
  }

  [[gnu::always_inline]] void ask() {
    if (left <= 0) return;
    left -= each;
    for (std::int64_t i = 0; i < each; ++i) {
      __builtin_prefetch(at, /*rw=*/0, /*locality=*/2);
      at += kLine;
      if (at >= end) {
        at = end + jump;
        end = at + bytes;
      }
    }
  }
};

// Rows times one part of the words of as many vectors.
template <class Set, int part, int Rows, int Vectors>
[[gnu::always_inline]] inline void add_part(const std::byte* x, std::int64_t stride,
                                            const typename Set::Vector* weights,
                                            typename Set::Vector (&sum)[Rows][Vectors]) {
  using Vector = typename Set::Vector;
  Vector weight[Vectors];  // NOLINT(*-avoid-c-arrays)
  for (int v = 0; v < Vectors; ++v) {
    if constexpr (Widens<Set>) {
      weight[v] = Set::template part_of<part>(weights[v]);
    } else {
      weight[v] = weights[v];
    }
  }
  for (std::int64_t r = 0; r < Rows; ++r) {
    float value;  // NOLINT(*-init-variables): X may be aligned to bytes only
    std::memcpy(&value, x + r * stride, sizeof(value));
    const Vector same = Set::broadcast(value);
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Set::multiply_add(same, weight[v], sum[r][v]);
  }
}

// The lines that a block asks for: its panel's alone, also those of rows, or its panel's twice.
enum class Asks { for_panel, for_rows, twice };

// Rows of X, wherever they begin, times Vectors·kLanes columns of the panel. Each element has one
// accumulator and takes k in sequence, in every instance of this template: that is why its bits
// depend on nothing else.
//
// Asks::for_rows: the same rows of the k that come next are asked for, a line of each with every
// line that is multiplied. The processor doesn't foresee them: a row's run is too short. As a
// branch in the loop it would cost those whose rows are in a cache a percent.
// Asks::twice: the panel is in memory, see kFarAhead.
template <class Set, int Rows, int Vectors, Asks asks>
[[gnu::always_inline]] inline void multiply_block(const TileCall& call, Asked& all,
                                                  std::int64_t row, int col) {
  using Vector = typename Set::Vector;
  const std::byte* x = call.rows + row * call.row_stride;
  const auto* panel = reinterpret_cast<const float*>(call.panel) + col;
  float* sums = call.sums + row * kPanelColumns + col;
  const std::int64_t words = call.k / Set::kWordK;
  Asked asked = all;
  asked.left = asked.share * Vectors * Set::kLanes / kPanelColumns;

  Vector sum[Rows][Vectors];
  for (std::int64_t r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      const auto* from = reinterpret_cast<const Vector*>(sums + r * kPanelColumns);
      sum[r][v] = call.first ? Vector{} : from[v];
    }
  }
  // Adds the words from `begin` on, of X at `from`.
  const auto add = [&](const std::byte* from, std::int64_t stride, std::int64_t begin,
                       std::int64_t end) __attribute__((always_inline)) {
    for (std::int64_t word = begin; word < end; ++word) {
      const auto* weights = reinterpret_cast<const Vector*>(panel + word * kPanelColumns);
      if (row == 0) {
        for (int c = 0; c < Vectors * Set::kLanes; c += kLineWords) {
          const float* line = panel + word * kPanelColumns + c;
          if constexpr (asks == Asks::twice) {
            __builtin_prefetch(line + kFarAhead * kPanelColumns, /*rw=*/0, /*locality=*/2);
            __builtin_prefetch(line + kNearAhead * kPanelColumns);
          } else {
            __builtin_prefetch(line + kAhead * kPanelColumns);
          }
        }
      }
      asked.ask();
      if (asks == Asks::for_rows && word % kLineWords == 0) {
        const std::byte* next = call.rows_ahead + row * call.row_stride + word * 4;
        for (std::int64_t r = 0; r < Rows; ++r)
          __builtin_prefetch(next + r * call.row_stride, /*rw=*/0, /*locality=*/2);
      }
      if constexpr (Widens<Set>) {
        add_part<Set, 1>(from + (word - begin) * 8 + 4, stride, weights, sum);
        add_part<Set, 0>(from + (word - begin) * 8, stride, weights, sum);
      } else {
        add_part<Set, 0>(from + word * 4, stride, weights, sum);
      }
    }
  };
  if constexpr (Widens<Set>) {
    // A line more, so that rows don't share the cache's sets.
    alignas(64) float wide[Rows][2 * kWidened + kLineWords];  // NOLINT(*-avoid-c-arrays)
    for (std::int64_t word = 0; word < words; word += kWidened) {
      const std::int64_t count = std::min(words - word, kWidened);
      for (std::int64_t r = 0; r < Rows; ++r)
        Set::widen(x + r * call.row_stride + word * 4, count, wide[r]);
      const auto before = Set::hold(sum);
      add(reinterpret_cast<const std::byte*>(wide), sizeof(wide[0]), word, word + count);
      Set::let_go(sum, before);
    }
  } else {
    add(x, call.row_stride, 0, words);
  }
  all = asked;
  for (int n = 0; n < call.nodes.count; ++n) {
    const float* node = call.nodes.of[static_cast<std::size_t>(n)] + row * kPanelColumns + col;
    for (std::int64_t r = 0; r < Rows; ++r) {
      const auto* from = reinterpret_cast<const Vector*>(node + r * kPanelColumns);
      for (int v = 0; v < Vectors; ++v) sum[r][v] = from[v] + sum[r][v];
    }
  }
  if constexpr (Rounds<Set>) {
    static_assert(Vectors * Set::kLanes == kPanelColumns, "it stores whole rows");
    if (call.out.data != nullptr) {
      for (std::int64_t r = 0; r < Rows; ++r)
        Set::store(call.out.data + (row + r) * call.out.row_stride, call.out.dtype, sum[r]);
      return;
    }
  }
  for (std::int64_t r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v)
      reinterpret_cast<Vector*>(sums + r * kPanelColumns)[v] = sum[r][v];
  }
}

template <class Set, int Rows>
void multiply_rows(const TileCall& call, Asked& asked, std::int64_t row) {
  constexpr int kVectors = Set::vectors(Rows);
  constexpr bool kAsksTwice = Rows <= kMostFromMemory || kPassesAgain<Set>;
  for (int col = 0; col < kPanelColumns; col += kVectors * Set::kLanes) {
    if constexpr (requires { Set::template multiply_block<Rows>(call, row, col); }) {
      Set::template multiply_block<Rows>(call, row, col);
    } else if (Rows == Set::kRows && col == 0 && call.rows_ahead != nullptr) {
      constexpr Asks kAsks = Rows == Set::kRows ? Asks::for_rows : Asks::for_panel;
      multiply_block<Set, Rows, kVectors, kAsks>(call, asked, row, col);
    } else if (kAsksTwice && call.from_memory) {
      constexpr Asks kAsks = kAsksTwice ? Asks::twice : Asks::for_panel;
      multiply_block<Set, Rows, kVectors, kAsks>(call, asked, row, col);
    } else {
      multiply_block<Set, Rows, kVectors, Asks::for_panel>(call, asked, row, col);
    }
  }
}

// The last `rest` rows, at most Rows.
template <class Set, int Rows>
void multiply_rest(const TileCall& call, Asked& asked, std::int64_t row, std::int64_t rest) {
  if constexpr (Rows > 0) {
    if (rest == Rows) {
      multiply_rows<Set, Rows>(call, asked, row);
    } else {
      multiply_rest<Set, Rows - 1>(call, asked, row, rest);
    }
  }
}

template <class Set>
void multiply_all(const TileCall& call, Asked& asked) {
  std::int64_t row = 0;
  for (; row + Set::kRows <= call.row_count; row += Set::kRows)
    multiply_rows<Set, Set::kRows>(call, asked, row);
  multiply_rest<Set, Set::kRows - 1>(call, asked, row, call.row_count - row);
}

// Moves a call on to the words behind it.
template <class Set>
void advance(TileCall& call) {
  const std::int64_t bytes = call.k / Set::kWordK * static_cast<std::int64_t>(sizeof(float));
  call.rows += bytes;
  call.panel += bytes * kPanelColumns;
}

template <class Set>
void multiply_in_pieces(const TileCall& call) {
  static_assert(!Rounds<Set>, "pieces have no place for results");
  Asked none;
  TileCall piece = call;
  piece.from_memory = true;
  piece.rows_ahead = nullptr;
  for (std::int64_t k = 0; k < call.k; k += piece.k, advance<Set>(piece)) {
    piece.k = std::min(call.k - k, kPieceWords * Set::kWordK);
    piece.first = call.first && k == 0;
    piece.nodes = k + piece.k == call.k ? call.nodes : Nodes{};
    multiply_all<Set>(piece, none);
  }
}

template <class Set>
void multiply_rows(const TileCall& call) {
  if constexpr (kPassesAgain<Set>) {
    // More rows in several passes ask for what comes next, which helps pieces of a view.
    const int most = call.from_memory ? kMostInPieces : Set::kRows;
    if (call.row_count > 1 && call.row_count <= most) return multiply_in_pieces<Set>(call);
  }
  Asked asked = Asked::by<Set>(call);
  multiply_all<Set>(call, asked);
}

// The overhead of a leaf of few rows matters: its multiplications take a microsecond.
template <class Set>
void multiply_leaves(const TileCall& call) {
  TileCall leaf = call;
  leaf.out = {};
  const auto leaves = static_cast<std::int64_t>(call.leaves.size());
  for (std::int64_t g = 0; g < leaves; ++g) {
    leaf.k = call.leaves[static_cast<std::size_t>(g)];
    leaf.sums = call.sums + Leaves::slot_of(g) * call.slot_stride;
    leaf.nodes = Leaves::nodes_of(g, call.sums, call.slot_stride);
    if (g + 1 == leaves) leaf.out = call.out;
    multiply_rows<Set>(leaf);
    advance<Set>(leaf);
  }
}

template <class Set>
void multiply(const TileCall& call) {
  if (call.leaves.empty()) {
    multiply_rows<Set>(call);
  } else {
    multiply_leaves<Set>(call);
  }
}

}  // namespace plait::gemm::vector
