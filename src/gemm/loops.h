// The loops around the kernels, once for every kind of processor that deserves its own.
//
// All sets give the same bits; they differ in speed only. No pointer needs alignment, except where
// results are streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/instruction_set.h"
#include "gemm/kernel.h"
#include "plait/tensor_view.h"

namespace plait::gemm {

// A word is an f32, or a pair of 16-bit elements, the first one in the low half.
struct Words {
  const std::byte* data;
  std::int64_t stride;  // in bytes, from row to row
  std::int64_t rows;
  std::int64_t cols;
};

// What becomes of a finished tile on its way out: y = sums · scales + bias (+ what is there), each
// operation rounded in f32, then rounded to the output's dtype. Every NaN becomes tensor::kNan: the
// compiler decides whose bits a product or an addition of two NaNs keeps.
struct Finish {
  const float* scales;  // of each column; nullptr: 1
  const float* bias;    // nullptr: 0
  bool accumulate;
};

// How results are written. Streamed ones go past the caches where the set knows how; their rows
// must be aligned to 64 bytes, and tensor::stream_fence() must follow the last of them.
enum class Stores : std::uint8_t { cached, streamed };

// Groups of a leaf, one after another.
struct GroupSums {
  const float* parts;   // [groups][rows][64]
  const float* scales;  // [groups][64]
  int groups;
  bool first;        // the leaf's sums start from 0 with them
  Nodes nodes = {};  // what is added after them, if the leaf ends with them
};

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

  // sums[i][j] += parts[g][i][j] · scales[g][j] for each group g in turn, the product rounded
  // before it is added, and then each node's element in turn; 64 columns.
  void (*add_scaled)(const GroupSums& groups, int rows, float* sums);

  // What ends a leaf: sums[i][j] = leaf[i][j] · scales[j], and each node's element added to that in
  // turn; 64 columns. Without scales (nullptr) the leaf is added as it is. It may lie at `sums`.
  void (*end_leaf)(const Nodes& nodes, const float* scales, int rows, const float* leaf,
                   float* sums);

  // The rows of sums, 64 apart, to those of `out`, which has at most 64 columns.
  void (*finish)(const Finish& finish, const float* sums, const TensorView& out);
};

const Loops& portable_loops();

// Every set that was compiled, best first; the last is usable everywhere.
std::span<const Loops* const> loop_sets();

// The best that this processor can run.
const Loops& loops();

}  // namespace plait::gemm
