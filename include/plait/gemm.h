// Matrix products, tile by tile: the engine under every operator.
//
//   plait::Gemm gemm = plait::select_gemm({.m = 512, .n = 4096, .k = 4096});
//   gemm.run({.x = {x}, .weight = packed, .out = y});
//
// A product can be run in windows (some rows by some columns) whose results go anywhere. It calls a
// hook for every finished tile, while the tile is still in the cache:
//
//   gemm.run({.x = {x}, .weight = packed, .out = chunk, .window = {.columns = {256, 512}},
//             .on_tile = [&](const Tile& tile) { ... }});
//
// A quantised weight is packed once, and the product is made for its scheme:
//
//   plait::Gemm gemm = plait::select_gemm({.m = 1, .n = 4096, .k = 4096, .quant = q.scheme()});
//   const plait::PackedWeight packed(q);
//
// Sums are f32. k is cut into leaves: 1 below k = 1024, then 2, 4 or 8 of at least 512, and 16 from
// 16384 on. Each leaf is one chain; neighbours are added in pairs, level by level. Values and
// offsets of quantised weights are exact. Scales multiply sums: a scale per group multiplies the
// group's sum, before it is added to the groups before it in its leaf; other scales multiply the
// leaf. The bits of an element depend only on its row of X, its column of the weight,
// GemmDesc::shares and the backend. They don't depend on m, windows, threads, or on whether rows or
// weight were packed before.
//
// If equal shares of k are nodes of the tree, their products can be added in pairs to get the bits
// of the product of all k. For this GemmDesc::shares must say how many there are. Nodes are 2, 4 or
// 8 shares of at least 512 k each, and 16 of at least 1024, in multiples of 32 (see sum_tree()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plait/export.h"
#include "plait/packed_input.h"
#include "plait/packed_weight.h"
#include "plait/panel_cache.h"
#include "plait/quant_scheme.h"
#include "plait/sum_tree.h"
#include "plait/tensor_view.h"
#include "plait/weight.h"

namespace plait {

// A problem, for which a backend is chosen. run() takes any number of rows; m is the usual one.
struct GemmDesc {
  std::int64_t m, n, k;
  Dtype x = Dtype::bf16;  // f32, bf16 or f16, as are the others
  Dtype weight = Dtype::bf16;
  Dtype out = Dtype::bf16;
  std::optional<QuantScheme> quant = {};  // of a quantised weight; `weight` is then ignored

  // The number of equal shares of a sum, of which k is one. If they are not nodes of the sum's
  // tree, or if there is only one, k is summed as a whole.
  std::int64_t shares = 1;

  bool operator==(const GemmDesc&) const = default;
};

// "m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16", "m=8 n=4096 k=4096 x=bf16 w=s8:group=128 out=bf16"
PLAIT_EXPORT std::string name(const GemmDesc& desc);

// The inverse of name(), in any order; dtypes that are not named are bf16. Schemes are read as
// parse_quant_scheme() does.
// Error{invalid_argument} says which word can't be read.
PLAIT_EXPORT GemmDesc parse_gemm(std::string_view text);

// Says whether each of desc.shares equal shares of k is a node of the tree of all of them. This
// needs 2, 4, 8 or 16 shares, none shorter than a leaf, each a multiple of 32 or of the weight's
// group.
PLAIT_EXPORT SumTree sum_tree(const GemmDesc& desc);

// X: rows of k elements. If transposed, the view is [k, m], as a weight's gradient needs it.
struct GemmInput {
  ConstTensorView view;
  bool transposed = false;

  std::int64_t rows() const { return transposed ? view.cols : view.rows; }
  std::int64_t k() const { return transposed ? view.rows : view.cols; }
};

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = -1;  // -1: the last

  bool operator==(const Range&) const = default;
};

// A block of the product: a range of its rows and one of its columns.
struct GemmWindow {
  Range rows = {};
  Range columns = {};
};

// A finished part of the product, counted in the rows and columns of the whole.
struct Tile {
  Range rows;
  Range columns;
};

struct GemmCall {
  GemmInput x;
  Weight weight;
  TensorView out = {};  // [rows, columns] of the window
  GemmWindow window = {};
  ConstTensorView bias = {};              // [1, n] or no data; added before rounding
  bool accumulate = false;                // adds to the values in `out`
  const PackedInput* packed_x = nullptr;  // the result of pack() for x
  PanelCache* panel_cache = nullptr;      // of a plain weight, for several runs
  // Instead of `out`, if the window's rows go to several places: the first rows go to the first
  // view.
  std::span<const TensorView> outs = {};
  // Called by the thread that has finished the tile; several threads may call at once. It may run
  // another Gemm. If it throws, run() throws the same, and only some tiles have been written.
  std::function<void(const Tile&)> on_tile = {};
};

// For one thread at a time. It keeps its working memory from one run to the next.
class PLAIT_EXPORT Gemm {
 public:
  class State;
  explicit Gemm(std::unique_ptr<State> state);
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  ~Gemm();

  const GemmDesc& desc() const;
  std::string_view backend() const;

  // Bytes of memory that it keeps: as much as its runs have needed so far.
  std::size_t held_bytes() const;

  // Error{invalid_argument}, with the operator and the values, before anything is written. If
  // memory runs out or a hook throws, `out` is undefined.
  void run(const GemmCall& call);

  // Packs all rows of x for several runs, of this product or of one with the same backend, weight
  // dtype and groups. The elements of x must stay unchanged until the last run.
  void pack(const GemmInput& x, PackedInput& to) const;

 private:
  State& state() const;  // refuses if it was moved to another Gemm

  std::unique_ptr<State> state_;
};

struct GemmOptions {
  std::string backend = {};  // its name; otherwise the best
  int threads = 0;           // 0: as many as OpenMP would use
};

PLAIT_EXPORT Gemm select_gemm(const GemmDesc& desc, const GemmOptions& options = {});

// The list that select_gemm() goes through: every backend, best first, and why it is refused.
struct GemmChoice {
  std::string backend;
  Dtype operand;        // the dtype that it multiplies; elements of another are widened to it
  std::string refusal;  // empty: it is usable
};
PLAIT_EXPORT std::vector<GemmChoice> explain_gemm(const GemmDesc& desc);

}  // namespace plait
