// Matrix products by cuBLASLt: out = x * w in one piece, sums in f32, one rounding to out.
//
//   if (const auto refusal = LtProduct::refusal(problem)) return *refusal;
//   LtProduct product({.m = 4096, .n = 8192, .k = 1024});
//   if (product.candidates(1) == 0) return "cuBLASLt has no candidate";
//   product.run({.x = x, .w = w, .out = out}, /*candidate=*/0, stream);
//
// Matrices are row-major: x is [m, k], out is [m, n], w is [n, k] or [k, n] as the layout says.
// All pointers are device memory of the device that was current in the constructor. lt_best.h finds
// the quickest candidate.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plait/dtype.h"
#include "plait/weight.h"

namespace plait::gpu {

struct LtProblem {
  std::int64_t m, n, k;
  Dtype in = Dtype::bf16;   // of x and w: bf16, f16
  Dtype out = Dtype::bf16;  // in, f32
  WeightLayout layout = WeightLayout::out_in;

  // Elements from row to row; 0: rows are contiguous.
  std::int64_t x_stride = 0, w_stride = 0, out_stride = 0;

  // Bytes of which all pointers are multiples. Memory that cudaMalloc gives has 256.
  std::uint32_t alignment = 256;

  // True if a candidate may cut k into parts whose sums are added up later. That is sometimes
  // quicker, but makes the order of the sum depend on m.
  bool may_split_k = true;

  std::size_t most_workspace = std::size_t{64} << 20;  // bytes
};

struct LtOperands {
  const void* x;
  const void* w;
  void* out;
};

// cuBLASLt's description of one of its algorithms. The numbers are its own, except for the number
// of parts of k.
struct LtChoice {
  int algorithm = 0;
  int tile = 0;
  int stages = 0;
  int k_parts = 1;
  std::size_t workspace_bytes = 0;
};

// A product of one shape. It owns the workspace of its candidates, so that its runs must not
// overlap: use one stream, or one LtProduct for each.
class LtProduct {
 public:
  // Why this process can't compute the problem with cuBLASLt, in words; nullopt: it can.
  static std::optional<std::string> refusal(const LtProblem& problem);

  // Throws Error{invalid_argument} if there is a refusal.
  explicit LtProduct(const LtProblem& problem);
  LtProduct(LtProduct&&) noexcept;
  LtProduct& operator=(LtProduct&&) noexcept;
  ~LtProduct();

  // Asks the heuristic for up to `most` candidates, the quickest by its estimate first, and returns
  // how many there are. They replace those of earlier calls. May allocate memory.
  int candidates(int most);

  LtChoice choice(int candidate) const;

  // Enqueues the product; candidate is less than what candidates() returned. Throws Error{system}
  // if cuBLASLt refuses.
  void run(const LtOperands& operands, int candidate, cudaStream_t stream) const;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace plait::gpu
