// The loops around the kernels, compiled once for each instruction set that makes them faster.
//
// All sets give the same bits; they differ in speed only. No pointer needs alignment, except where
// results are streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/instruction_set.h"
#include "gemm/kernel.h"
#include "gemm/leaves.h"
#include "plait/tensor_view.h"

namespace plait::gemm {

// A word is an f32, or a pair of 16-bit elements, the first one in the low half.
struct Words {
  const std::byte* data;
  std::int64_t stride;  // in bytes, from row to row
  std::int64_t rows;
  std::int64_t cols;
};

// How a finished tile becomes a result: y = sums · scales + bias (+ what is there), each operation
// rounded in f32, then rounded to the output's dtype. Every NaN becomes tensor::kNan: otherwise the
// compiler would decide which bits a product or an addition of two NaNs keeps.
struct Finish {
  const float* scales;  // of each column; nullptr: 1
  const float* bias;    // nullptr: 0
  bool accumulate;
};

// How results are written. Streamed ones bypass the caches if the set has instructions for that;
// their rows must be aligned to 64 bytes, and tensor::stream_fence() must follow the last of them.
enum class Stores : std::uint8_t { cached, streamed };

// The sums of pieces of k that follow one another, of one leaf or several.
struct PieceSums {
  std::span<const Piece> pieces;
  const float* sums;         // [pieces][rows][64]
  const float* scales;       // of the first piece's columns; nullptr: 1
  std::int64_t scales_step;  // from one piece's scales to the next; 0: all have the same
  bool add_up;               // several pieces make a leaf, which starts from 0; else one is a leaf
  bool begins_leaf;          // the first of them is the first of its leaf
};

// The slots in which leaves wait: the first slot, and how many floats lie from one to the next.
struct Slots {
  float* sums;  // [rows][64]
  std::int64_t stride;
};

// Calls `one` with the pieces of each leaf.
template <class One>
void for_each_leaf(PieceSums from, std::int64_t rows, const One& one) {
  for (std::span<const Piece> rest = from.pieces; !rest.empty();) {
    std::size_t count = 1;
    while (count < rest.size() && !rest[count - 1].ends_leaf) ++count;
    from.pieces = rest.first(count);
    one(from);
    rest = rest.subspan(count);
    const auto done = static_cast<std::int64_t>(count);
    from.sums += done * rows * kPanelColumns;
    from.scales += done * from.scales_step;
    from.begins_leaf = true;
  }
}

struct Loops {
  const char* name;
  base::InstructionSet needs;

  // to[j * to_stride + i] = from[i][j]
  void (*transpose)(const Words& from, std::uint32_t* to, std::int64_t to_stride, Stores stores);

  // to[i] = the pair (even[i], odd[i])
  void (*interleave)(const std::uint16_t* even, const std::uint16_t* odd, std::int64_t n,
                     std::uint32_t* to, Stores stores);

  // A panel's block of k / 2 rows of 64 pairs becomes k rows of 64 f32.
  void (*widen_bf16)(const std::uint32_t* from, std::int64_t k, float* to);
  void (*widen_f16)(const std::uint32_t* from, std::int64_t k, float* to);

  // Converts pairs of s8 (two bytes) or s4 (one byte, the first in its low half) alike, and adds 64
  // offsets, or none where they are nullptr.
  void (*s8_to_f32)(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets, float* to);
  void (*s4_to_f32)(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets, float* to);

  // And to pairs of bf16, which is exact.
  void (*s8_to_bf16)(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets,
                     std::uint32_t* to);
  void (*s4_to_bf16)(const std::int8_t* from, std::int64_t k, const std::int8_t* offsets,
                     std::uint32_t* to);

  // Multiplies each piece's sums by their scales, rounds, and adds them to their leaf, or begins
  // the leaf with them. If the leaf ends with the piece, adds the nodes in the slots below its own,
  // the lowest first. 64 columns. All pieces in one call: a leaf of one row is over in half a
  // microsecond. Sums that become a leaf may lie in its slot.
  void (*add_to_leaves)(const PieceSums& from, int rows, const Slots& slots);

  // The rows of sums, 64 apart, to those of `out`, which has at most 64 columns.
  void (*finish)(const Finish& finish, const float* sums, const TensorView& out);
};

const Loops& portable_loops();

// Every set that was compiled, best first; the last is usable everywhere.
std::span<const Loops* const> loop_sets();

// The best that this processor can run.
const Loops& loops();

}  // namespace plait::gemm
